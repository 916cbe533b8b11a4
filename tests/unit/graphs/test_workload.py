"""Expected cost of a workload: pads, what runs above the ladder, steps above the bound in pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv41c.graphs.workload import DEFAULT_HISTOGRAM, default_histogram, workload_ns
from dsv41c.runtime.plan.costs import Costs, cost_of, runs_of, step_ns

COSTS = Costs(replay_ns=100, row_ns=3, eager_ns=1000)
ABOVE = st.sampled_from(["eager", "split"])


@pytest.mark.parametrize(("above", "over"), [("eager", 1115), ("split", 106 + 112)])
def test_a_step_pays_for_the_rows_it_launches(above: str, over: int) -> None:
    assert [step_ns((2, 4), above, n, COSTS) for n in (1, 2, 3, 4, 5)] == [106, 106, 112, 112, over]


@given(st.sets(st.integers(1, 40), max_size=5), ABOVE, st.integers(1, 300))
def test_a_step_costs_what_its_runs_cost(rungs: set[int], above: str, rows: int) -> None:
    runs = runs_of(sorted(rungs), above, rows)
    assert step_ns(sorted(rungs), above, rows, COSTS) == sum(cost_of(run, COSTS) for run in runs)
    assert sum(run.rows for run in runs) == rows


def test_steps_above_the_bound_are_cut() -> None:
    full, rest = (step_ns((2, 4), "eager", rows, COSTS) for rows in (4, 2))
    assert workload_ns({10: 1}, 4, (2, 4), COSTS, "eager") == 2 * full + rest
    assert workload_ns({8: 3}, 4, (4,), COSTS, "eager") == 6 * full


@given(st.dictionaries(st.integers(1, 50), st.integers(0, 9)), st.integers(1, 20), ABOVE)
def test_counts_are_weights(sizes: dict[int, int], bound: int, above: str) -> None:
    """Rows of the whole workload are launched, each as often as it is counted."""
    only_rows = Costs(0, 1, 0)
    assert workload_ns(sizes, bound, (), only_rows, above) == sum(rows * count for rows, count in sizes.items())


def test_the_default_is_whole_and_positive() -> None:
    assert set(DEFAULT_HISTOGRAM) == {"decode", "encoder", "decoder", "head", "draft"}
    assert all(rows > 0 and count > 0 for sizes in DEFAULT_HISTOGRAM.values() for rows, count in sizes.items())


@given(st.integers(1, 10_000))
def test_a_bounded_decoder_runs_the_end_of_each_prompt(keep: int) -> None:
    kept = default_histogram(keep)
    assert {n: s for n, s in kept.items() if n != "decoder"} == {
        n: s for n, s in default_histogram(None).items() if n != "decoder"}
    assert max(kept["decoder"]) == min(keep, max(DEFAULT_HISTOGRAM["decoder"]))
    assert sum(kept["decoder"].values()) == sum(DEFAULT_HISTOGRAM["decoder"].values())
