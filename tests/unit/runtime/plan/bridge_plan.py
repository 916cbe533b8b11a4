"""Plans with breaks whose outputs later steps read, made by the product's own cut; and one change for each rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from dsv41c.compiler.ops.spec import CaptureClass
from dsv41c.graphs.bridges import Effects, find_bridges
from dsv41c.graphs.cut import Call, GraphSegment, cut
from dsv41c.graphs.memory import Lifetime, plan_layout
from dsv41c.runtime.plan import schema as s
from tests.unit.runtime.plan.plan_strategies import EXAMPLE_LADDER

COLUMNS, HI = 4, 8
BYTES = HI * COLUMNS * 4  # of every value at the bound
FIRST, SECOND = 0, 1
KEPT = 0  # the flow's bridge, in the table and among the values of each method


@dataclass(frozen=True)
class Step:
    """One launch: it makes values 2i and 2i + 1 and reads the listed earlier ones, odd ones through a view."""

    is_break: bool
    reads: tuple[int, ...] = ()


EXAMPLE = ((Step(False), Step(True, (0,)), Step(False, (2,)), Step(True, (4,)), Step(False, (6, 7, 3))),
           (Step(True), Step(False, (0,))))


def bridge_plan(methods: Sequence[Sequence[Step]] = EXAMPLE) -> s.Plan:
    """Method i has symbol Si; call 0 of each writes the flow's bridge, the last call reads it."""
    built = [_Method(number, steps) for number, steps in enumerate(methods)]
    bridges = [s.Bridge("kept", "float32", (HI, COLUMNS), 0)]
    lives = [(f"{m.name}.{value}", m, number) for m in built for number, value in m.bridged.items()]
    layout = plan_layout([Lifetime(name, BYTES, 1000 * m.number + m.lives[number][0], 1000 * m.number
                                   + m.lives[number][1]) for name, m, number in lives])
    for name, m, number in lives:
        m.index[number] = len(bridges)
        bridges.append(s.Bridge(name, "float32", (HI, COLUMNS), BYTES + layout.offsets[name],
                                s.StepsLife(m.name, *m.lives[number])))
    made = tuple(m.finish() for m in built)
    arena, bridge_bytes = max(m.arena_bytes for m in made), BYTES + layout.total_bytes
    return s.Plan(
        s.PLAN_VERSION, ("native_cpu",), "cpu", s.Provenance("ab" * 32, {}, "tests"),
        tuple(s.Symbol(m.symbol, 1, HI) for m in made), s.Memory(0, bridge_bytes, 0, arena, bridge_bytes + arena),
        (), (), tuple(bridges), (s.Kernel("dsv41c::mix", {}, s.NativeBody("mix"), 0),), made,
        (s.Flow("all", tuple(m.name for m in made), "nothing"),), ())


class _Method:
    def __init__(self, number: int, steps: Sequence[Step]) -> None:
        self.number, self.name, self.symbol = number, f"m{number}", f"S{number}"
        self._steps = steps
        self._cut = cut([Call(f"mix.{i}", "mix", CaptureClass.BREAK if step.is_break else CaptureClass.CAPTURE)
                         for i, step in enumerate(steps)])
        effects = [Effects(frozenset(step.reads), frozenset((2 * i, 2 * i + 1))) for i, step in enumerate(steps)]
        self.lives = {n: (life.first, life.last) for n, life in find_bridges(self._cut, effects).items()}
        self.bridged = {n: f"v{n}" for n in self.lives}
        self.index: dict[int, int] = {}

    def finish(self) -> s.Method:
        """Values: the flow's bridge, then two of each launch, then a view of each odd one."""
        count = 2 * len(self._steps)
        storages: list[s.Storage] = [s.BridgeStorage(KEPT)]
        storages += [s.BridgeStorage(self.index[i]) if i in self.index else s.ArenaStorage(i * BYTES)
                     for i in range(count)]
        names = ["kept", *(f"v{i}" for i in range(count)), *(f"v{i}.view" for i in range(1, count, 2))]
        storages += [s.ViewStorage(1 + i, 0) for i in range(1, count, 2)]
        values = tuple(s.Value(name, "float32", (self.symbol, COLUMNS), (COLUMNS, 1), storage, "rows")
                       for name, storage in zip(names, storages, strict=True))
        launches = [self._launch(i, step, count) for i, step in enumerate(self._steps)]
        steps = tuple(s.Segment(tuple(launches[i] for i in step.calls)) if isinstance(step, GraphSegment)
                      else s.Break(step.op, step.reason, (launches[step.call],)) for step in self._cut.steps)
        return s.Method(self.name, "rows", self.symbol, (1, HI), (), (), values, steps, count * BYTES,
                        EXAMPLE_LADDER)

    def _launch(self, number: int, step: Step, count: int) -> s.Launch:
        tensors: list[s.Argument] = [s.In(1 + count + read // 2 if read % 2 else 1 + read) for read in step.reads]
        if number and number == len(self._steps) - 1:
            tensors.append(s.In(KEPT))
        tensors += [s.Out(1 + 2 * number), s.Out(2 + 2 * number)]
        if number == 0:
            tensors.append(s.Out(KEPT))
        return s.Launch(f"mix.{number}", 0, tuple(tensors), None)


@st.composite
def recipes(draw: st.DrawFn) -> list[list[Step]]:
    return [[Step(draw(st.booleans()), tuple(draw(st.lists(st.integers(0, 2 * i - 1), max_size=3, unique=True)))
                  if i else ()) for i in range(draw(st.integers(1, 8)))] for _ in range(draw(st.integers(1, 3)))]


# --- changes of the example -------------------------------


def bridge(doc: Any, name: str) -> Any:
    return next(b for b in doc["bridges"] if b["name"] == name)


def life(name: str, **changes: Any) -> Callable[[Any], None]:
    return lambda doc: bridge(doc, name)["life"]["steps"].update(changes)


def place(name: str, of: str | None = None, offset: int = 0) -> Callable[[Any], None]:
    def change(doc: Any) -> None:
        bridge(doc, name)["offset"] = offset if of is None else bridge(doc, of)["offset"] + offset

    return change


def tensors(doc: Any, method: int, number: int) -> Any:
    return [launch for step in doc["methods"][method]["steps"]
            for launch in next(iter(step.values()))["launches"]][number]["tensors"]


def value(doc: Any, method: int, name: str) -> int:
    return [v["name"] for v in doc["methods"][method]["values"]].index(name)


def to_arena(name: str, method: int = FIRST) -> Callable[[Any], None]:
    """A dropped bridge: the value lies in the arena, at bytes that nothing else uses."""
    def change(doc: Any) -> None:
        at = value(doc, method, name)
        doc["methods"][method]["values"][at]["storage"] = {"arena": (at - 1) * BYTES}

    return change


def add(method: int, number: int, kind: str, name: str) -> Callable[[Any], None]:
    return lambda doc: tensors(doc, method, number).append({kind: value(doc, method, name)})


def of_the_other_method(doc: Any) -> None:
    """The second method reads what lies in a bridge of the first."""
    doc["methods"][SECOND]["values"][value(doc, SECOND, "v2")]["storage"] = {
        "bridge": [b["name"] for b in doc["bridges"]].index("m0.v3")}


def both(*changes: Callable[[Any], None]) -> Callable[[Any], None]:
    def change(doc: Any) -> None:
        for each in changes:
            each(doc)

    return change


# m0.v2 lives through steps 1 to 2, m0.v3 from 1 to 4, m0.v6 and m0.v7 from 3 to 4; m1.v0 through 0 to 1.
BROKEN: dict[str, tuple[str, Callable[[Any], None]]] = {
    # the table
    "outside the region": ("range outside its region", place("m0.v3", offset=1 << 20)),
    "unaligned": ("offset is not aligned", place("m0.v3", offset=BYTES + 4)),
    "negative": ("offset out of range", place("m0.v3", offset=-64)),
    "life of no method": ("unknown method", life("m0.v3", method="m9")),
    "life of another method": ("bridge is used outside its life", life("m0.v3", method="m1", first=0, last=1)),
    "life beyond the last step": ("bad bridge life", life("m0.v3", last=5)),
    "life before the first step": ("bad bridge life", life("m0.v3", first=-1)),
    "life of one step": ("bad bridge life", life("m0.v3", last=1)),
    "life that ends before it begins": ("bad bridge life", life("m0.v6", last=2)),
    "life that begins in a segment": ("bad bridge life", life("m0.v3", first=0)),
    "two of one break share bytes": ("two live bridges overlap", place("m0.v3", of="m0.v2")),
    "two of one break share some bytes": ("two live bridges overlap", place("m0.v3", of="m0.v2", offset=64)),
    "bytes of a longer life": ("two live bridges overlap", place("m0.v6", of="m0.v3")),
    "bytes of a flow": ("two live bridges overlap", place("m0.v3", offset=0)),
    "bytes of a flow, in part": ("two live bridges overlap", place("m0.v3", offset=BYTES - 64)),
    "a flow in bytes of a break": ("two live bridges overlap",
                                   lambda d: bridge(d, "m1.v0").update(life={"flow": True})),
    "a longer life meets who came behind": ("two live bridges overlap", both(
        place("m0.v6", of="m0.v2"), place("m0.v7", offset=BYTES + 2 * BYTES), life("m0.v2", last=3))),
    # its use
    "read behind its life": ("bridge is used outside its life", life("m0.v3", last=3)),
    "read through a view behind its life": ("bridge is used outside its life", both(
        add(FIRST, 2, "in", "v3.view"), life("m0.v3", last=2))),
    "written before its life": ("bridge is used outside its life", life("m0.v3", first=3)),
    "used by another method": ("bridge is used outside its life", of_the_other_method),
    "written by a later break": ("bridge is written behind its break", add(FIRST, 3, "out", "v3")),
    "written by a segment": ("bridge is written behind its break", add(FIRST, 2, "out", "v3")),
    "changed by a segment": ("bridge is written behind its break", add(FIRST, 2, "inout", "v3")),
    "read by its break": ("bridge is read before it is written",
                          lambda d: tensors(d, FIRST, 1).__setitem__(2, {"in": value(d, FIRST, "v3")})),
    "changed by its break": ("bridge is read before it is written",
                             lambda d: tensors(d, FIRST, 1).__setitem__(2, {"inout": value(d, FIRST, "v3")})),
    "not written by its break": ("bridge is read before it is written", lambda d: tensors(d, FIRST, 1).pop(2)),
    "dropped": ("output of a break is in the arena", to_arena("v2")),
    "dropped, read over other steps": ("output of a break is in the arena", to_arena("v3")),
    "dropped, read through a view": ("output of a break is in the arena", to_arena("v7")),
    "dropped in another method": ("output of a break is in the arena", to_arena("v0", SECOND)),
    "changed by a break in the arena": ("output of a break is in the arena", both(
        add(FIRST, 2, "in", "v1"), add(FIRST, 1, "inout", "v1"))),
}
MALFORMED: dict[str, tuple[str, Callable[[Any], object]]] = {
    "no life": ("missing key", lambda b: b.pop("life")),
    "null": ("unknown case", lambda b: b.update(life=None)),
    "unknown life": ("unknown case", lambda b: b.update(life={"forever": True})),
    "two lives": ("unknown case", lambda b: b["life"].update(flow=True)),
    "flow that is not": ("wrong type", lambda b: b.update(life={"flow": False})),
    "no last": ("missing key", lambda b: b["life"]["steps"].pop("last")),
    "a key too many": ("unknown key", lambda b: b["life"]["steps"].update(bytes=1)),
    "step as text": ("wrong type", lambda b: b["life"]["steps"].update(first="1")),
}
