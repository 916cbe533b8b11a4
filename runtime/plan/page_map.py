"""Memory map of a method as SVG: every arena value a rectangle, launches to the right and offsets upwards."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from dsv41c.runtime.plan.arena_lives import ArenaLife, arena_lives, live_bytes
from dsv41c.runtime.plan.explain import places
from dsv41c.runtime.plan.schema import Break, Launch, Method

_HEIGHT = 1000  # units of the map, whatever the arena's size: browsers draw in float32
_LIVE = 100


@dataclass(frozen=True)
class Painter:
    """The class of the style sheet for each kind of layer, and the kind of each place (layer, embed, head)."""

    classes: Mapping[str, str]
    kinds: Mapping[str, str]

    def kind(self, place: str) -> str:
        return self.kinds.get(place, place)

    def style(self, place: str) -> str:
        return self.classes[self.kind(place)]


def memory_map(method: Method, bound: int, painter: Painter) -> str:
    """The map, what is alive at each launch below it, and the launches' names for the script."""
    placed = list(places(method))
    lives = arena_lives(method, bound)
    if not lives or not placed:
        return '<p class="soft">This method keeps nothing in the arena.</p>'
    total, count = method.arena_bytes, len(placed)
    scratch = {launch.scratch for _, launch in placed}
    shapes = [*_bands(placed, painter), *_values(lives, total, placed, scratch, painter), *_cuts(method, _HEIGHT)]
    alive = live_bytes(lives)
    names = json.dumps([f"{launch.name} ({painter.kind(place)})" for place, launch in placed]).replace("</", "<\\/")
    legend = "".join(f'<span><i class="key {painter.classes[kind]}"></i>{html.escape(kind)}</span>'
                     for kind in dict.fromkeys(painter.kind(place) for place, _ in placed))
    return f"""<div class="tools"><button data-zoom="x-in">launches +</button>
<button data-zoom="x-out">launches −</button><button data-zoom="y-in">bytes +</button>
<button data-zoom="y-out">bytes −</button><button data-zoom="reset">whole</button>
<span class="legend">{legend}<span><i class="key" style="background: var(--scratch)"></i>scratch</span></span></div>
<div class="map"><div class="scale"><span class="high">{size_text(total)}</span><span class="low">0 B</span></div>
<svg class="arena" viewBox="0 0 {count} {_HEIGHT}" preserveAspectRatio="none" data-bytes="{total}" role="img">
<title>offset in the arena against launches</title>{''.join(shapes)}</svg>
<div class="scale live"><span>{size_text(max(alive))}</span><span>alive</span></div>{_live(alive, count)}
<div class="ends"><span class="from">launch 0</span><span>wheel: zoom, drag: move</span>
<span class="to">launch {count - 1}</span></div></div>
<div class="readout mono soft">Point at the map to read values and launches.</div>
<script type="application/json">{names}</script>"""


def size_text(size: float) -> str:
    """`1.5 MiB`"""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def _bands(placed: Sequence[tuple[str, Launch]], painter: Painter) -> Iterator[str]:
    """Every second place is shaded, so that layers can be told apart."""
    start = 0
    for number, (place, members) in enumerate(groupby(place for place, _ in placed)):
        width = len(list(members))
        title = f"layer {place}, {painter.kind(place)}" if place.isdecimal() else place
        if number % 2:
            yield (f'<rect class="band" x="{start}" y="0" width="{width}" height="{_HEIGHT}">'
                   f"<title>{html.escape(title)}</title></rect>")
        start += width


def _values(lives: Sequence[ArenaLife], total: int, placed: Sequence[tuple[str, Launch]], scratch: set[int | None],
            painter: Painter) -> Iterator[str]:
    unit = _HEIGHT / total
    for life in lives:
        style = "s" if life.value in scratch else painter.style(placed[life.first][0])
        moments = f"launch {life.first}" if life.first == life.last else f"launches {life.first} to {life.last}"
        title = f"{life.name}: {life.num_bytes:,} bytes at {life.offset:,}, {moments}"
        top = _HEIGHT - (life.offset + life.num_bytes) * unit
        yield (f'<rect class="a {style}" x="{life.first}" y="{top:.6g}" width="{life.last - life.first + 1}" '
               f'height="{life.num_bytes * unit:.4g}"><title>{html.escape(title)}</title></rect>')


def _cuts(method: Method, height: int) -> Iterator[str]:
    """A line before and behind each break."""
    start = 0
    for step in method.steps:
        end = start + len(step.launches)
        if isinstance(step, Break):
            for x in (start, end):
                yield f'<line class="cut" x1="{x}" x2="{x}" y1="0" y2="{height}"/>'
        start = end


def _live(alive: Sequence[int], count: int) -> str:
    peak = max(alive)
    points = "".join(f"L{n} {_LIVE - _LIVE * size / peak:.1f}H{n + 1}" for n, size in enumerate(alive))
    return (f'<svg class="live" viewBox="0 0 {count} {_LIVE}" preserveAspectRatio="none" role="img"><title>bytes alive '
            f'at each launch</title><path class="area" d="M0 {_LIVE}{points}V{_LIVE}Z"/>'
            f'<line class="peak" x1="0" x2="{count}" y1="0.5" y2="0.5"/></svg>')
