"""Cuts: laws of the cut, the proof that catches every way to break one, and the lives of what breaks leave behind."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dsv41c.compiler.ops.spec import CaptureClass
from dsv41c.graphs.bridges import BridgeLife, Effects, find_bridges
from dsv41c.graphs.coverage import check_coverage
from dsv41c.graphs.cut import Call, CutSet, GraphSegment, NamedBreak, cut
from dsv41c.runtime.plan.errors import Dsv41cError

CAPTURED, BREAKING = CaptureClass.CAPTURE, CaptureClass.BREAK


@st.composite
def methods(draw: st.DrawFn, least: int = 0) -> list[Call]:
    classes = st.sampled_from((CAPTURED, CAPTURED, CAPTURED, BREAKING))
    return [Call(f"call_{i}", draw(st.sampled_from("abc")), draw(classes), draw(st.integers(0, 4)) == 0)
            for i in range(draw(st.integers(least, 20)))]


def positions(cut_set: CutSet) -> list[int]:
    return [p for step in cut_set.steps for p in (step.calls if isinstance(step, GraphSegment) else (step.call,))]


# --- the cut ----------------------------------------------


@given(methods())
def test_every_cut_is_covered(calls: list[Call]) -> None:
    check_coverage(calls, cut(calls))
    assert positions(cut(calls)) == list(range(len(calls)))


@given(methods())
def test_segments_are_the_longest_there_are(calls: list[Call]) -> None:
    """No two of them follow each other, so that a method without breaks is one graph."""
    kinds = [type(step) for step in cut(calls).steps]
    assert (GraphSegment, GraphSegment) not in zip(kinds, kinds[1:], strict=False)
    breaks = [c for c in calls if c.forced or c.capture is BREAKING]
    assert kinds.count(NamedBreak) == len(breaks)


@given(methods())
def test_a_break_says_its_op_and_why(calls: list[Call]) -> None:
    for step in cut(calls).steps:
        if isinstance(step, NamedBreak):
            call = calls[step.call]
            assert step.op == call.op
            assert step.reason == (f"{call.op} needs live host data" if call.capture is BREAKING
                                   else "forced by --break")


@pytest.mark.parametrize("forced", [False, True])
def test_an_op_of_the_host_is_refused(forced: bool) -> None:
    with pytest.raises(Dsv41cError, match="DSV41C-E0202") as caught:
        cut([Call("print_1", "print", CaptureClass.HOST, forced)])
    assert "print" in caught.value.subject and caught.value.where == "print_1"


# --- the proof --------------------------------------------


def refused(calls: list[Call], steps: list[GraphSegment | NamedBreak]) -> Dsv41cError:
    with pytest.raises(Dsv41cError, match="DSV41C-E0403") as caught:
        check_coverage(calls, CutSet(tuple(steps)))
    return caught.value


@given(methods(least=1), st.data())
def test_a_call_that_is_left_out_or_held_twice_is_named(calls: list[Call], data: st.DataObject) -> None:
    steps = list(cut(calls).steps)
    number = data.draw(st.integers(0, len(steps) - 1))
    step = steps[number]
    held = step.calls if isinstance(step, GraphSegment) else (step.call,)
    victim = calls[data.draw(st.sampled_from(held))]
    left = tuple(p for p in held if calls[p] is not victim)
    assert victim.name in refused(calls, steps[:number] + [GraphSegment(left)] * bool(left)
                                  + steps[number + 1:]).subject
    assert "cut at call" in refused(calls, steps[: number + 1] + steps[number:]).subject
    assert "empty" in refused(calls, [*steps, GraphSegment(())]).found
    for stranger in (-1, len(calls)):
        assert str(stranger) in refused(calls, [*steps, GraphSegment((stranger,))]).found


@given(methods(least=2), st.randoms())
def test_another_order_is_refused(calls: list[Call], random: object) -> None:
    steps = list(cut(calls).steps)
    shuffled = [GraphSegment(tuple(reversed(s.calls))) if isinstance(s, GraphSegment) else s for s in steps]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assume(positions(CutSet(tuple(shuffled))) != list(range(len(calls))))
    assert "the order" in refused(calls, shuffled).needed


@given(methods(least=1))
def test_no_call_changes_sides(calls: list[Call]) -> None:
    """A break op in a segment, and a break at a call that asks for none."""
    for number, call in enumerate(calls):
        breaks = call.forced or call.capture is BREAKING
        steps: list[GraphSegment | NamedBreak] = []
        for i, each in enumerate(calls):
            as_break = (each.forced or each.capture is BREAKING) != (i == number)
            steps.append(NamedBreak(i, each.op, "why") if as_break else GraphSegment((i,)))
        error = refused(calls, steps)
        assert call.name in error.subject
        assert ("in a segment" if breaks else f"a break at {call.op}") in error.found


@pytest.mark.parametrize("change", [lambda b: dataclasses.replace(b, op="other"),
                                    lambda b: dataclasses.replace(b, reason="")])
def test_a_break_of_another_name_or_without_a_reason_is_refused(change: Callable[[NamedBreak], NamedBreak]) -> None:
    calls = [Call("call_0", "a", BREAKING)]
    assert "call_0" in refused(calls, [change(NamedBreak(0, "a", "why"))]).subject


# --- what breaks leave behind -----------------------------


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[Call], list[Effects]]:
    """Call i makes memory i (or none) and reads some of what earlier calls made."""
    calls = draw(methods())
    effects: list[Effects] = []
    for number in range(len(calls)):
        made = [m for e in effects for m in e.makes]
        reads = draw(st.lists(st.sampled_from(made), max_size=3)) if made else []
        effects.append(Effects(frozenset(reads), frozenset([number] if draw(st.integers(0, 5)) else [])))
    return calls, effects


@given(programs())
def test_bridges_are_what_a_later_step_reads_of_a_break(program: tuple[list[Call], list[Effects]]) -> None:
    calls, effects = program
    steps = cut(calls).steps
    step_of = {p: n for n, s in enumerate(steps) for p in (s.calls if isinstance(s, GraphSegment) else (s.call,))}
    wanted = {}
    for number, call in enumerate(calls):
        if call.forced or call.capture is BREAKING:
            for memory in effects[number].makes:
                readers = [step_of[i] for i in range(len(calls)) if memory in effects[i].reads]
                if readers:
                    wanted[memory] = BridgeLife(step_of[number], max(readers))
    found = find_bridges(cut(calls), effects)
    assert found == wanted and list(found) == sorted(found)
    assert all(life.first < life.last for life in found.values())
