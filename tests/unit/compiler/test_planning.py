"""Plans at other sizes: lowered from one capture, equal to those that a compilation of these sizes makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsv41c.compiler.checkpoint.view import CheckpointView
from dsv41c.compiler.driver import compile_plan, fuse
from dsv41c.compiler.options import CompileOptions
from dsv41c.compiler.planning import Planner
from dsv41c.graphs.budget import solve
from dsv41c.graphs.workload import DEFAULT_HISTOGRAM
from dsv41c.runtime.plan import codec
from dsv41c.runtime.plan.errors import Dsv41cError


@pytest.fixture(scope="module")
def planner(tiny_checkpoint: Path) -> Planner:
    options = CompileOptions(max_model_len=64, block_size=16, max_num_seqs=4, max_num_batched_tokens=24)
    return Planner(fuse(CheckpointView.open(tiny_checkpoint), options, lambda _: None))


@pytest.mark.parametrize(("tier", "rows"), [(64, 24), (1000, 33), (4096, 512)])
def test_a_plan_at_other_sizes_is_the_compiled_one(planner: Planner, tier: int, rows: int) -> None:
    """Byte by byte: positions enter weights (rotary tables), state, scratch; rows enter bounds, bridges, arena."""
    compiled = compile_plan(planner.fused.view, planner.options(tier, rows), lambda _: None).plan
    assert codec.encode(planner.plan(tier, rows)) == codec.encode(compiled)


def test_planning_leaves_the_program_alone(planner: Planner) -> None:
    first = codec.encode(planner.plan(64, 24))
    Planner(planner.fused).plan(500, 100)
    assert codec.encode(Planner(planner.fused).plan(64, 24)) == first


def test_state_bytes_are_known_without_a_plan(planner: Planner) -> None:
    for tier in (64, 100, 4096):
        assert planner.state_bytes(tier) == planner.plan(tier, 24).memory.state_bytes


def test_the_choice_fits_and_the_next_one_would_not(planner: Planner) -> None:
    space = planner.space((64, 128, 256), (8, 24, 48))
    totals = {(t, r): planner.candidate(t, r).fixed_bytes for t in space.tiers for r in space.row_bounds}
    for budget in (min(totals.values()), totals[128, 24], max(totals.values())):
        found = solve(space, DEFAULT_HISTOGRAM, budget)
        assert found.total_bytes == totals[found.max_model_len, found.max_rows] <= budget
        assert all(totals[t, r] > budget for t, r in totals if t > found.max_model_len)


def test_sizes_that_the_model_does_not_allow_are_refused(planner: Planner) -> None:
    with pytest.raises(Dsv41cError, match="DSV41C-E0901"):
        planner.plan(5000, 24)
