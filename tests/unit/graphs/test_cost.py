"""Expected cost: pads, eager above the ladder, steps above the bound are split."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dsv41c.graphs.cost import DEFAULT_COST, DEFAULT_HISTOGRAM, CostModel, step_ns, workload_ns

COST = CostModel(replay_ns=100, row_ns=3, eager_ns=1000)


def test_a_step_pays_for_the_rows_it_launches() -> None:
    assert [step_ns(n, (2, 4), COST) for n in (1, 2, 3, 4, 5)] == [106, 106, 112, 112, 1115]


def test_steps_above_the_bound_are_split() -> None:
    assert workload_ns({10: 1}, 4, (2, 4), COST) == 2 * step_ns(4, (2, 4), COST) + step_ns(2, (2, 4), COST)
    assert workload_ns({8: 3}, 4, (4,), COST) == 6 * step_ns(4, (4,), COST)


@given(st.dictionaries(st.integers(1, 50), st.integers(0, 9)), st.integers(1, 20))
def test_counts_are_weights(sizes: dict[int, int], bound: int) -> None:
    """Rows of the whole workload are launched, each as often as it is counted."""
    only_rows = CostModel(0, 1, 0)
    assert workload_ns(sizes, bound, (), only_rows) == sum(rows * count for rows, count in sizes.items())


def test_defaults_are_whole_and_positive() -> None:
    assert min(vars(DEFAULT_COST).values()) > 0
    assert set(DEFAULT_HISTOGRAM) == {"decode", "encoder", "decoder", "head"}
    assert all(rows > 0 and count > 0 for sizes in DEFAULT_HISTOGRAM.values() for rows, count in sizes.items())
