"""Lives read back from plans: across segments and breaks, against the verifier, peak and arena."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv41c.graphs.memory import Lifetime, aligned, check_layout, plan_layout
from dsv41c.runtime.manifest import Manifest
from dsv41c.runtime.plan.arena_lives import ArenaLife, arena_lives, live_bytes, peak_bytes
from dsv41c.runtime.plan.explain import explain
from dsv41c.runtime.plan.schema import Break, Method, Plan, Segment, Step
from dsv41c.runtime.plan.verify import verify
from tests.unit.runtime.plan.plan_strategies import plans


def bound_of(plan: Plan, method: Method) -> int:
    return next(s.hi for s in plan.symbols if s.name == method.symbol)


@st.composite
def recut(draw: st.DrawFn, method: Method) -> Method:
    """The same launches in other segments and breaks."""
    launches = [launch for step in method.steps for launch in step.launches]
    steps: list[Step] = []
    while launches:
        count = draw(st.integers(1, len(launches)))
        taken, launches = tuple(launches[:count]), launches[count:]
        steps.append(Break("op", "a reason", taken) if draw(st.booleans()) else Segment(taken))
    return dataclasses.replace(method, steps=tuple(steps))


@given(st.data())
def test_lives_do_not_depend_on_where_a_method_is_cut(data: st.DataObject) -> None:
    plan = data.draw(plans())
    for method in plan.methods:
        bound = bound_of(plan, method)
        other = data.draw(recut(method))
        assert arena_lives(other, bound) == arena_lives(method, bound)


@given(plans())
def test_no_layout_is_below_the_peak(plan: Plan) -> None:
    for method in plan.methods:
        assert peak_bytes(method, bound_of(plan, method)) <= method.arena_bytes


def test_live_bytes_count_aligned_values() -> None:
    lives = [ArenaLife(0, "a", 0, 100, 0, 1), ArenaLife(1, "b", 128, 64, 1, 3), ArenaLife(2, "c", 0, 1, 3, 3)]
    assert live_bytes(lives) == (128, 192, 64, 128)
    assert live_bytes([]) == ()


@pytest.fixture(scope="module")
def tiny_plan(compiled_artifact: Callable[..., Path]) -> Plan:
    artifact = compiled_artifact("tiny", 0, max_model_len=64, block_size=16, max_num_seqs=4, max_num_batched_tokens=24)
    return Manifest.read(artifact).read_plan()


def test_a_compiled_plan_is_what_its_lives_ask_for(tiny_plan: Plan) -> None:
    """Planned again from the lives that are read back: the same offsets, no overlap, the same arena."""
    for method in tiny_plan.methods:
        lives = arena_lives(method, bound_of(tiny_plan, method))
        items = [Lifetime(str(x.value), x.num_bytes, x.first, x.last) for x in lives]
        layout = plan_layout(items)
        check_layout(items, layout)
        assert {int(name): offset for name, offset in layout.offsets.items()} == {x.value: x.offset for x in lives}
        assert layout.total_bytes == method.arena_bytes == max(x.offset + aligned(x.num_bytes) for x in lives)


def test_values_live_through_breaks(tiny_plan: Plan) -> None:
    """Every launch a break of its own: what is written before one and read behind it keeps its bytes meanwhile."""
    for method in tiny_plan.methods:
        launches = [launch for step in method.steps for launch in step.launches]
        broken = dataclasses.replace(method, steps=tuple(Break("op", "a reason", (x,)) for x in launches))
        lives = arena_lives(broken, bound_of(tiny_plan, method))
        through = [x for x in lives if x.last - x.first > 1]
        assert through or len(launches) < 10
        for life in through:
            meanwhile = [x for x in lives if x is not life and x.first <= life.last and life.first <= x.last]
            assert all(x.offset + x.num_bytes <= life.offset or life.offset + life.num_bytes <= x.offset
                       for x in meanwhile)


def test_the_arena_is_that_of_the_largest_method(tiny_plan: Plan) -> None:
    """Methods never run at once: each lies in the same bytes from 0 on."""
    assert tiny_plan.memory.arena_bytes == max(m.arena_bytes for m in tiny_plan.methods)
    verify(tiny_plan)


def test_explain_compares_peak_and_arena(tiny_plan: Plan) -> None:
    for facts, method in zip(explain(tiny_plan)["methods"], tiny_plan.methods, strict=True):
        assert 0 < facts["peak_bytes"] == peak_bytes(method, facts["max_rows"]) <= facts["arena_bytes"]
