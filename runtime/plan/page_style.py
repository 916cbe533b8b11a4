"""Style and script of the page that `dsv41c explain --html` writes: inline, nothing is fetched."""

from __future__ import annotations

STYLE = """
:root { color-scheme: light dark; --bg: #fbfbf9; --card: #ffffff; --ink: #1b1d21; --soft: #62676f; --line: #dfe1e5;
  --band: #f1f2f4; --accent: #2a66c8; --scratch: #a9adb5; --break: #c62f2f;
  --k0: #2a78d6; --k1: #d9772b; --k2: #1b9e77; --k3: #8a63c9; --k4: #b8487f; --k5: #8c8a2e; --k6: #4a9fb5;
  --k7: #9a6a4a; }
@media (prefers-color-scheme: dark) { :root { --bg: #15171a; --card: #1d2024; --ink: #e8e9eb; --soft: #a0a5ad;
  --line: #33373d; --band: #24282d; --accent: #7fb0ff; --scratch: #666b74; --break: #ff7b72;
  --k0: #5b9df0; --k1: #e8935a; --k2: #3fbf96; --k3: #ab8be6; --k4: #d978a8; --k5: #b9b65a; --k6: #70c0d4;
  --k7: #c29372; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--bg); color: var(--ink); font: 14px/1.5 system-ui, sans-serif; }
main { max-width: 1440px; margin: 0 auto; padding: 24px 28px 64px; }
h1 { font-size: 22px; margin: 0 0 2px; } h2 { font-size: 16px; margin: 0 0 12px; } h3 { font-size: 13px;
  margin: 0 0 8px; }
p { margin: 0 0 8px; } .soft { color: var(--soft); } .num { font-variant-numeric: tabular-nums; text-align: right; }
.mono { font: 12px/1.45 ui-monospace, monospace; overflow-wrap: anywhere; }
section, .method { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 18px 20px;
  margin: 16px 0; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin: 16px 0; }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 10px 14px; }
.tile b { display: block; font-size: 20px; font-weight: 600; } .tile span { color: var(--soft); font-size: 12px; }
table { border-collapse: collapse; width: 100%; } th { text-align: left; color: var(--soft); font-weight: 500; }
th.num { text-align: right; } td, th { padding: 3px 10px 3px 0; border-bottom: 1px solid var(--line);
  vertical-align: top; }
.bar { display: flex; height: 26px; border-radius: 5px; overflow: hidden; gap: 2px; margin: 4px 0 14px; }
.bar > i { min-width: 2px; } .key { display: inline-block; width: 10px; height: 10px; border-radius: 2px;
  margin-right: 7px; }
.meter { display: inline-block; height: 9px; border-radius: 2px; background: var(--accent); vertical-align: middle; }
.tabs { display: flex; flex-wrap: wrap; gap: 6px; margin: 20px 0 -8px; }
button { font: inherit; color: var(--ink); background: var(--card); border: 1px solid var(--line); border-radius: 6px;
  padding: 4px 12px; cursor: pointer; } button[aria-selected=true] { border-color: var(--accent);
  color: var(--accent); }
button:focus-visible { outline: 2px solid var(--accent); }
.columns { display: grid; grid-template-columns: repeat(auto-fit, minmax(360px, 1fr)); gap: 8px 36px;
  margin-bottom: 16px; }
.chip { display: inline-block; border: 1px solid var(--line); border-radius: 10px; padding: 0 8px; margin: 0 4px 5px 0;
  font-variant-numeric: tabular-nums; }
.steps { display: flex; height: 24px; gap: 2px; margin-bottom: 6px; }
.steps > i { background: var(--accent); opacity: .75; min-width: 3px; border-radius: 2px; flex-basis: 0; font: 11px/24px
  system-ui, sans-serif; color: var(--card); text-align: center; overflow: hidden; white-space: nowrap; }
.steps > i.break { background: var(--break); opacity: 1; flex: 0 0 5px; }
.map { display: grid; grid-template-columns: 78px 1fr; gap: 0 8px; } .map svg { width: 100%; display: block;
  background: var(--bg); border: 1px solid var(--line); touch-action: none; cursor: crosshair; }
.map svg.arena { height: 460px; } .map svg.live { height: 84px; margin-top: 6px; }
.scale { display: flex; flex-direction: column; justify-content: space-between; text-align: right; font-size: 11px;
  color: var(--soft); font-variant-numeric: tabular-nums; } .scale.live { margin-top: 6px; }
.ends { grid-column: 2; display: flex; justify-content: space-between; font-size: 11px; color: var(--soft); }
.tools { display: flex; gap: 6px; align-items: center; margin: 0 0 8px; flex-wrap: wrap; }
.legend { margin-left: auto; font-size: 12px; color: var(--soft); } .legend span { margin-left: 14px;
  white-space: nowrap; }
.readout { min-height: 38px; margin-top: 6px; }
.band { fill: var(--band); } .cut { stroke: var(--break); stroke-width: 1.5; vector-effect: non-scaling-stroke; }
.a { stroke: var(--card); stroke-width: .6; vector-effect: non-scaling-stroke; } .a:hover { stroke: var(--ink);
  stroke-width: 1.5; } .s { fill: var(--scratch); } .area { fill: var(--accent); opacity: .35; }
.peak { stroke: var(--accent); stroke-dasharray: 4 3; vector-effect: non-scaling-stroke; }
""" + "\n".join(f".k{n} {{ fill: var(--k{n}); background: var(--k{n}); }}" for n in range(8))

# Static markup shows everything; the script adds tabs, zoom and the read-out. Errors stay where a test can see them.
ERRORS = "window.onerror = (text) => { document.documentElement.dataset.errors = text; };"
SCRIPT = r"""
const bytes = (n) => { const units = ["B", "KiB", "MiB", "GiB", "TiB"]; let u = 0;
  while (n >= 1024 && u < 4) { n /= 1024; u += 1; } return (u ? n.toFixed(1) : Math.round(n)) + " " + units[u]; };
const methods = [...document.querySelectorAll(".method")], tabs = [...document.querySelectorAll("[role=tab]")];
function show(name) {
  methods.forEach((m) => { m.hidden = m.dataset.method !== name; });
  tabs.forEach((t) => t.setAttribute("aria-selected", String(t.dataset.tab === name)));
}
tabs.forEach((t) => t.addEventListener("click", () => show(t.dataset.tab)));
const first = tabs.find((t) => t.getAttribute("aria-selected") === "true");
if (first) show(first.dataset.tab);
for (const method of methods) {
  const map = method.querySelector("svg.arena"), live = method.querySelector("svg.live");
  if (!map) continue;
  const names = JSON.parse(method.querySelector("script[type='application/json']").textContent);
  const [, , W, H] = map.getAttribute("viewBox").split(" ").map(Number), total = Number(map.dataset.bytes);
  let view = { x: 0, y: 0, w: W, h: H }, drag = null;
  const high = method.querySelector(".high"), low = method.querySelector(".low");
  const from = method.querySelector(".from"), to = method.querySelector(".to");
  const readout = method.querySelector(".readout");
  function apply() {
    view.w = Math.min(W, Math.max(view.w, W / 400)); view.h = Math.min(H, Math.max(view.h, H / 100000));
    view.x = Math.min(Math.max(view.x, 0), W - view.w); view.y = Math.min(Math.max(view.y, 0), H - view.h);
    map.setAttribute("viewBox", [view.x, view.y, view.w, view.h].join(" "));
    live.setAttribute("viewBox", [view.x, 0, view.w, 100].join(" "));
    high.textContent = bytes((H - view.y) / H * total);
    low.textContent = bytes((H - view.y - view.h) / H * total);
    from.textContent = "launch " + Math.floor(view.x);
    to.textContent = "launch " + (Math.ceil(view.x + view.w) - 1);
  }
  function zoom(fx, fy, kx, ky) {
    view.x += view.w * fx * (1 - kx); view.y += view.h * fy * (1 - ky); view.w *= kx; view.h *= ky; apply();
  }
  const place = (e) => { const box = map.getBoundingClientRect();
    return [(e.clientX - box.left) / box.width, (e.clientY - box.top) / box.height]; };
  map.addEventListener("wheel", (e) => { e.preventDefault(); const [fx, fy] = place(e), k = e.deltaY < 0 ? 0.8 : 1.25;
    zoom(fx, fy, e.altKey ? 1 : k, e.shiftKey ? 1 : k); }, { passive: false });
  map.addEventListener("pointerdown", (e) => { drag = [...place(e), view.x, view.y];
  map.setPointerCapture(e.pointerId); });
  map.addEventListener("pointerup", () => { drag = null; });
  map.addEventListener("pointermove", (e) => {
    const [fx, fy] = place(e);
    if (drag) { view.x = drag[2] - (fx - drag[0]) * view.w; view.y = drag[3] - (fy - drag[1]) * view.h; apply(); }
    const launch = Math.floor(view.x + fx * view.w), title = e.target.querySelector && e.target.querySelector("title");
    readout.textContent = "launch " + launch + ": " + (names[launch] || "") + ", offset "
      + bytes((H - view.y - fy * view.h) / H * total) + (title && e.target.classList.contains("a")
      ? " — " + title.textContent : "");
  });
  const buttons = method.querySelectorAll("[data-zoom]");
  buttons.forEach((b) => b.addEventListener("click", () => {
    if (b.dataset.zoom === "reset") { view = { x: 0, y: 0, w: W, h: H }; apply(); return; }
    const k = b.dataset.zoom.endsWith("in") ? 0.5 : 2, steps = b.dataset.zoom.startsWith("x");
    zoom(0.5, steps ? 0.5 : 1, steps ? k : 1, steps ? 1 : k);
  }));
  apply();
}
document.documentElement.dataset.ready = "1";
"""
