"""Lowering of launches to steps: capture classes and forced ops decide, and what a break leaves behind is found."""

from __future__ import annotations

import dataclasses

import pytest

from dsv41c.compiler.lower_steps import lower_steps
from dsv41c.compiler.ops.catalog import OPS
from dsv41c.compiler.ops.spec import CaptureClass, OpSpec
from dsv41c.graphs.bridges import BridgeLife
from dsv41c.runtime.plan import schema as s
from dsv41c.runtime.plan.errors import Dsv41cError

VIEWS = {10: 1, 11: 10}  # a view of what the second launch makes, and a view of that


def launch(name: str, *tensors: s.Argument) -> s.Launch:
    return s.Launch(name, 0, tensors, 99)  # a scratch crosses no cut


def spec(name: str, capture: CaptureClass) -> OpSpec:
    return dataclasses.replace(OPS[name], capture=capture)


def owner(value: int) -> int:
    while value in VIEWS:
        value = VIEWS[value]
    return value


LAUNCHES = [launch("first", s.Out(0)), launch("second", s.In(0), s.Absent(), s.Out(1), s.Out(2)),
            launch("third", s.In(11), s.InOut(7), s.Out(3)), launch("fourth", s.In(3), s.In(7), s.Out(4))]
CLASSES = ("rms_norm", "linear", "rotary", "linear")


@pytest.mark.parametrize("declared", [True, False])
def test_a_class_and_a_forced_op_break_alike(declared: bool) -> None:
    """But for the reason that the plan gives."""
    capture = {name: CaptureClass.BREAK if declared and name == "linear" else CaptureClass.CAPTURE for name in CLASSES}
    found = lower_steps(LAUNCHES, [spec(n, capture[n]) for n in CLASSES], () if declared else ("linear",), owner)
    reason = "linear needs live host data" if declared else "forced by --break"
    first, second, third, fourth = LAUNCHES
    assert found.steps == (s.Segment((first,)), s.Break("linear", reason, (second,)), s.Segment((third,)),
                           s.Break("linear", reason, (fourth,)))
    assert found.bridges == {1: BridgeLife(1, 2)}  # through two views; 2 and 4 have no reader, state is no output


def test_without_breaks_a_method_is_one_segment() -> None:
    found = lower_steps(LAUNCHES, [OPS[name] for name in CLASSES], ("mega_moe",), owner)
    assert found.steps == (s.Segment(tuple(LAUNCHES)),) and found.bridges == {}


def test_an_op_of_the_host_is_refused() -> None:
    specs = [spec(name, CaptureClass.HOST if name == "rotary" else CaptureClass.CAPTURE) for name in CLASSES]
    with pytest.raises(Dsv41cError, match="DSV41C-E0202") as caught:
        lower_steps(LAUNCHES, specs, (), owner)
    assert caught.value.subject == "op rotary" and caught.value.where == "third"
