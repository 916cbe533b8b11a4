"""Cuts a method's calls into graph segments and named breaks: a pure function of capture classes and forced breaks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dsv41c.compiler.ops.spec import CaptureClass
from dsv41c.runtime.plan.errors import Dsv41cError


@dataclass(frozen=True)
class Call:
    """One call of a method; `forced`: it breaks the graph although its capture class does not ask for that."""

    name: str
    op: str
    capture: CaptureClass
    forced: bool = False


@dataclass(frozen=True)
class GraphSegment:
    """Positions of calls that follow each other and may be recorded as one graph."""

    calls: tuple[int, ...]


@dataclass(frozen=True)
class NamedBreak:
    """Position of a call that runs alone between graphs, its op and why."""

    call: int
    op: str
    reason: str


@dataclass(frozen=True)
class CutSet:
    steps: tuple[GraphSegment | NamedBreak, ...]


def cut(calls: Sequence[Call]) -> CutSet:
    """The longest segments there are; every call that breaks is a step of its own. E0202 for an op of the host."""
    steps: list[GraphSegment | NamedBreak] = []
    run: list[int] = []
    for position, call in enumerate(calls):
        reason = _reason(call)
        if reason is None:
            run.append(position)
            continue
        steps += [GraphSegment(tuple(run))] if run else []
        steps.append(NamedBreak(position, call.op, reason))
        run = []
    return CutSet((*steps, GraphSegment(tuple(run))) if run else tuple(steps))


def _reason(call: Call) -> str | None:
    """Why the call breaks the graph; None when it does not."""
    if call.capture is CaptureClass.HOST:
        raise Dsv41cError("DSV41C-E0202", f"op {call.op}", where=call.name, found="capture class HOST in a method",
                          needed="CAPTURE or BREAK", do="move host work out of the captured program")
    if call.capture is CaptureClass.BREAK:
        return f"{call.op} needs live host data"
    return "forced by --break" if call.forced else None
