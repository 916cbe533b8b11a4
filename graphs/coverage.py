"""Proves that each call lies in one segment or one break of a cut, in order; shares no code with the cut."""

from __future__ import annotations

from collections.abc import Sequence

from dsv41c.compiler.ops.spec import CaptureClass
from dsv41c.graphs.cut import Call, CutSet, GraphSegment, NamedBreak
from dsv41c.runtime.plan.errors import Dsv41cError


def check_coverage(calls: Sequence[Call], cut_set: CutSet) -> None:
    """E0403, which names the call, unless the steps are the calls in their order and every break is alone and named."""
    steps_of: list[list[GraphSegment | NamedBreak]] = [[] for _ in calls]
    order = []
    for step in cut_set.steps:
        positions = step.calls if isinstance(step, GraphSegment) else (step.call,)
        if not positions:
            raise _uncovered("an empty segment", None, "segments of at least one call")
        for position in positions:
            if not 0 <= position < len(calls):
                raise _uncovered(f"call {position} of {len(calls)}", None, "calls of the method")
            steps_of[position].append(step)
            order.append(position)
    for call, steps in zip(calls, steps_of, strict=True):
        if len(steps) != 1:
            raise _uncovered(f"{len(steps)} steps that hold it", call, "exactly one")
        _check_step(call, steps[0])
    for before, behind in zip(order, order[1:], strict=False):
        if before > behind:
            raise _uncovered(f"a place behind {calls[before].name}", calls[behind], "the order of the method")


def _check_step(call: Call, step: GraphSegment | NamedBreak) -> None:
    """A call that breaks the graph has a break of its own name, every other one lies in a segment."""
    breaks = call.forced or call.capture is not CaptureClass.CAPTURE
    if isinstance(step, GraphSegment):
        if breaks:
            raise _uncovered(f"{call.op}, which breaks the graph, in a segment", call, "a break of its own")
    elif not breaks:
        raise _uncovered(f"a break at {call.op}", call, "a segment: neither its class nor --break asks for a break")
    elif step.op != call.op or not step.reason:
        raise _uncovered(f"break {step.op!r}, reason {step.reason!r}", call, f"break {call.op!r} with a reason")


def _uncovered(found: str, call: Call | None, needed: str) -> Dsv41cError:
    subject = "cut of a method" if call is None else f"cut at call {call.name}"
    return Dsv41cError("DSV41C-E0403", subject, found=found, needed=needed, do="report this as a bug")
