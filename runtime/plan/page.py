"""One page about a plan: memory by class, methods with their steps, buckets and launches, and maps of the arena."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from dsv41c.runtime.plan.explain import explain, places
from dsv41c.runtime.plan.layer_launches import layer_kinds
from dsv41c.runtime.plan.page_map import Painter, memory_map, size_text
from dsv41c.runtime.plan.page_style import ERRORS, SCRIPT, STYLE
from dsv41c.runtime.plan.schema import Break, Method, Plan

_COLOURS = 8


def page(plan: Plan, name: str) -> str:
    """A whole HTML document without any reference to something outside of it."""
    facts, painter = explain(plan), _painter(plan)
    bounds = {symbol.name: symbol.hi for symbol in plan.symbols}
    largest = max(plan.methods, key=lambda m: m.arena_bytes).name
    tabs = "".join(f'<button role="tab" data-tab="{_text(m.name)}" aria-selected="{str(m.name == largest).lower()}">'
                   f"{_text(m.name)}</button>" for m in plan.methods)
    methods = "\n".join(_method(m, m.run_rows(bounds[m.symbol]), f, painter)
                        for m, f in zip(plan.methods, facts["methods"], strict=True))
    options = ", ".join(f"{key} {value}" for key, value in plan.provenance.options.items() if value not in ("", False))
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Plan of {_text(name)}</title><style>{STYLE}</style><script>{ERRORS}</script></head>
<body><main><h1>Plan of {_text(name)}</h1>
<p class="soft">{_text(plan.target)}, {_text(plan.provenance.producer)}, model
<span class="mono">{_text(plan.provenance.model_digest[:16])}</span></p><p class="soft">{_text(options)}</p>
{_tiles(plan, facts)}
{_memory(facts)}
<div class="tabs" role="tablist">{tabs}</div>
{methods}
</main><script>{SCRIPT}</script></body></html>
"""


def _painter(plan: Plan) -> Painter:
    kinds = {str(layer): kind.removesuffix(" + engram") for layer, kind in layer_kinds(plan).items()}
    found = dict.fromkeys(kinds.get(place, place) for method in plan.methods for place, _ in places(method))
    return Painter({kind: f"k{number % _COLOURS}" for number, kind in enumerate(found)}, kinds)


def _tiles(plan: Plan, facts: Mapping[str, Any]) -> str:
    breaks = sum(len(m["breaks"]) for m in facts["methods"])
    tiles = [(size_text(plan.memory.total_bytes), "reserved beside the weights"),
             (size_text(facts["memory"]["weight_bytes"]), "weights"), (str(len(plan.methods)), "methods"),
             (str(sum(m["launches"] for m in facts["methods"])), "launches of all methods"), (str(breaks), "breaks"),
             (str(sum(len(m.buckets) for m in plan.methods)), "buckets"), (str(len(plan.kernels)), "distinct kernels")]
    return '<div class="tiles">' + "".join(f'<div class="tile"><b>{value}</b><span>{label}</span></div>'
                                           for value, label in tiles) + "</div>"


def _memory(facts: Mapping[str, Any]) -> str:
    classes = {name: size for name, size in facts["classes"].items() if size}
    total = sum(classes.values())
    ranked = sorted(classes.items(), key=lambda item: -item[1])
    bar = "".join(f'<i class="k{n % _COLOURS}" style="flex: {size / total:.6f}" '
                  f'title="{_text(name)}: {size:,} bytes"></i>' for n, (name, size) in enumerate(ranked))
    rows = "".join(f'<tr data-class="{_text(name)}"><td><i class="key k{n % _COLOURS}"></i>'
                   f'{_text(name.replace("_", " "))}</td><td class="num">{size:,}</td>'
                   f'<td class="num">{size_text(size)}</td><td class="num">{size / total:.1%}</td></tr>'
                   for n, (name, size) in enumerate(ranked))
    flows = "".join(f"<p>flow <b>{_text(f['name'])}</b>: {_text(' → '.join(f['methods']))} "
                    f'<span class="soft">(requires {_text(f["requires"])})</span></p>' for f in facts["flows"])
    return (f'<section><h2>Memory by class</h2><div class="bar">{bar}</div><div class="columns"><table>'
            f'<tr><th>class</th><th class="num">bytes</th><th></th><th class="num">share</th></tr>{rows}</table>'
            f"<div><h3>Flows</h3>{flows}"
            f"<p class=soft>Methods never run at the same time: the arena is as large as the largest of them "
            f"needs. Weights are mapped, and not part of the sum.</p></div></div></section>")


def _method(method: Method, bound: int, facts: Mapping[str, Any], painter: Painter) -> str:
    peak = facts["peak_bytes"]
    over = f"{method.arena_bytes / peak - 1:.1%} more than is alive at once" if peak else "empty"
    chips = "".join(f'<span class="chip" data-bucket="{b}">{b}</span>' for b in method.buckets)
    return f"""<div class="method" data-method="{_text(method.name)}"><h2>{_text(method.name)}</h2>
<div class="columns"><div><p><b>{_text(method.axis)}</b> up to {bound}; {facts['segments']} segments,
{len(facts['breaks'])} breaks, {facts['launches']} launches of {facts['kernel_runs']} kernels</p>
<p>arena {method.arena_bytes:,} bytes ({size_text(method.arena_bytes)}); {peak:,} alive at the peak: {over}</p>
<h3>Buckets</h3><p>{chips or 'none'}</p><h3>Segments and breaks</h3>{_steps(method)}</div>
<div><h3>Launches by kind of layer</h3>{_kinds(method, painter)}</div></div>
<h3>Memory map: offset in the arena × launch</h3>
{memory_map(method, bound, painter)}</div>"""


def _steps(method: Method) -> str:
    strip, listed, counts = [], [], Counter[str]()
    for step in method.steps:
        kind = "break" if isinstance(step, Break) else "segment"
        number = counts[kind]
        counts[kind] += 1
        size = len(step.launches)
        if isinstance(step, Break):
            strip.append(f'<i class="break" data-break="{number}" title="break {number}: {_text(step.op)}"></i>')
            listed.append(f'<tr><td>{number}</td><td class="mono">{_text(step.op)}</td>'
                          f"<td>{_text(step.reason)}</td></tr>")
        else:
            strip.append(f'<i data-segment="{number}" style="flex-grow: {size}" '
                         f'title="segment {number}: {size} launches">{size}</i>')
    table = f"<table><tr><th>break</th><th>op</th><th>reason</th></tr>{''.join(listed)}</table>" if listed else ""
    folded = f"<details><summary>{len(listed)} breaks</summary>{table}</details>" if len(listed) > 8 else table
    return f'<div class="steps">{"".join(strip)}</div>{folded}'


def _kinds(method: Method, painter: Painter) -> str:
    launches: Counter[str] = Counter()
    layers: dict[str, set[str]] = {}
    for place, _ in places(method):
        kind = painter.kind(place)
        launches[kind] += 1
        layers.setdefault(kind, set()).update([place] if place.isdecimal() else [])
    most = max(launches.values(), default=1)
    return ('<table><tr><th>kind</th><th class="num">layers</th><th class="num">launches</th>'
            '<th style="width: 40%"></th></tr>' + "".join(_kind_rows(launches, layers, most, painter)) + "</table>")


def _kind_rows(launches: Mapping[str, int], layers: Mapping[str, set[str]], most: int,
               painter: Painter) -> Iterator[str]:
    for kind, count in launches.items():
        style = painter.classes[kind]
        yield (f'<tr><td><i class="key {style}"></i>{_text(kind)}</td><td class="num">{len(layers[kind]) or "–"}</td>'
               f'<td class="num">{count}</td>'
               f'<td><i class="meter {style}" style="width: {count / most:.1%}"></i></td></tr>')


def _text(value: object) -> str:
    return html.escape(str(value))
