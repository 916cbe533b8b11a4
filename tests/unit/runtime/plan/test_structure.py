"""Structure: launches, segments, breaks and classes of memory are compared, bodies and scratch are not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from dsv41c.runtime.plan import schema as s
from dsv41c.runtime.plan.structure import structure_differences
from tests.unit.runtime.plan.plan_strategies import example_plan


def changed_method(plan: s.Plan, **fields: Any) -> s.Plan:
    return replace(plan, methods=(replace(plan.methods[0], **fields), *plan.methods[1:]))


def changed_launch(plan: s.Plan, **fields: Any) -> s.Plan:
    step = plan.methods[0].steps[0]
    step = replace(step, launches=(replace(step.launches[0], **fields), *step.launches[1:]))
    return changed_method(plan, steps=(step, *plan.methods[0].steps[1:]))


def of_kernel(plan: s.Plan, **fields: Any) -> s.Plan:
    number = plan.methods[0].steps[0].launches[0].kernel
    return replace(plan, kernels=tuple(replace(k, **fields) if i == number else k for i, k in enumerate(plan.kernels)))


def another_break(plan: s.Plan) -> s.Plan:
    launches = plan.methods[0].steps[0].launches
    return changed_method(plan, steps=(s.Break("op", "why", launches), *plan.methods[0].steps[1:]))


def moved_to_state(plan: s.Plan) -> s.Plan:
    """A value that lay in the arena lies in the first state tensor."""
    values = plan.methods[0].values
    used = {getattr(t, "value", None) for launch in plan.methods[0].steps[0].launches for t in launch.tensors}
    number = next(i for i, v in enumerate(values) if isinstance(v.storage, s.ArenaStorage) and i in used)
    return changed_method(plan, values=tuple(replace(v, storage=s.StateStorage(0)) if i == number else v
                                             for i, v in enumerate(values)))


SAME: dict[str, Callable[[s.Plan], s.Plan]] = {
    "itself": lambda p: p,
    "target": lambda p: replace(p, target="sm_90a", required_features=("cuda_cubin",)),
    "body": lambda p: of_kernel(p, body=s.CudaBody(()), scratch_bytes=4096),
    "scratch": lambda p: changed_launch(p, scratch=0),
    "arena": lambda p: replace(changed_method(p, arena_bytes=1 << 20), memory=replace(p.memory, arena_bytes=1 << 20)),
    "name of a launch": lambda p: changed_launch(p, name="another"),
    "order of kernels": lambda p: of_kernel(p, body=s.NativeBody("another")),
}
DIFFERENT: dict[str, tuple[Callable[[s.Plan], s.Plan], str]] = {
    "op": (lambda p: of_kernel(p, op="dsv41c::another"), "op "),
    "attribute": (lambda p: of_kernel(p, attributes={"more": 1}), "more nothing -> 1"),
    "break": (another_break, "segment -> break op: why"),
    "launch gone": (lambda p: changed_method(p, steps=p.methods[0].steps[1:]), "launches[0]"),
    "buckets": (lambda p: changed_method(p, buckets=(1,)), ".buckets"),
    "class of memory": (moved_to_state, " in state "),
    "tensor": (lambda p: changed_launch(p, tensors=(s.Absent(),)), "-> none"),
    "state": (lambda p: replace(p, state=p.state[1:]), "state: "),
    "io": (lambda p: replace(p, memory=replace(p.memory, io_bytes=1)), "memory.io_bytes"),
    "methods": (lambda p: replace(p, methods=p.methods[:1]), "methods: "),
    "symbol": (lambda p: replace(p, symbols=(replace(p.symbols[0], hi=999), *p.symbols[1:])), "symbols: "),
    "output": (lambda p: replace(p, methods=(p.methods[0], replace(p.methods[1], outputs=()))), ".outputs: "),
}


@pytest.mark.parametrize("name", SAME)
def test_what_is_of_no_concern(name: str) -> None:
    plan = example_plan()
    assert list(structure_differences(plan, SAME[name](plan))) == []


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_is_told(name: str) -> None:
    """Both ways round."""
    plan = example_plan()
    change, words = DIFFERENT[name]
    lines = list(structure_differences(plan, change(plan)))
    assert lines and any(words in line for line in lines), lines
    assert list(structure_differences(change(plan), plan))
