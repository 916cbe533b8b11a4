"""Measured ladders: as cheap as the best of all ladders, and cheaper with more rungs."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv41c.graphs.histogram import cheapest_rungs, expected_cost, ladders_by_size
from dsv41c.runtime.plan.costs import Costs
from dsv41c.runtime.plan.errors import Dsv41cError

COSTS = st.builds(Costs, st.integers(0, 60), st.integers(0, 9), st.integers(0, 80))
ABOVE = st.sampled_from(["eager", "split"])


def counts(bound: int) -> st.SearchStrategy[dict[int, int]]:
    return st.dictionaries(st.integers(1, bound), st.integers(0, 9), min_size=1)


@settings(deadline=None, max_examples=150)
@given(st.data(), st.integers(1, 11), st.integers(0, 5), COSTS, st.sampled_from(["eager"]))
def test_no_ladder_is_cheaper(data: st.DataObject, bound: int, more: int, costs: Costs, above: str) -> None:
    """Against every ladder with the small sizes, rungs on sizes that do not occur among them."""
    sizes = data.draw(counts(bound))
    small = tuple(range(1, min(bound, 3) + 1))
    found = cheapest_rungs(sizes, len(small) + more, bound, costs, above)
    assert found[: len(small)] == small and list(found) == sorted(set(found)) and len(found) <= len(small) + more
    every = ((*small, *others) for number in range(more + 1)
             for others in combinations(range(4, bound + 1), number))
    assert expected_cost(found, sizes, costs, above) == min(expected_cost(r, sizes, costs, above) for r in every)


@settings(deadline=None, max_examples=100)
@given(st.data(), st.integers(4, 11), st.integers(0, 5), COSTS)
def test_no_ladder_of_measured_sizes_is_cheaper_where_rows_are_split(data: st.DataObject, bound: int, more: int,
                                                                     costs: Costs) -> None:
    """A split may like a top that no step has; tops are looked for among the sizes."""
    sizes = data.draw(counts(bound))
    found = cheapest_rungs(sizes, 3 + more, bound, costs, "split")
    seen = [rows for rows, count in sizes.items() if rows > 3 and count]
    every = ((1, 2, 3, *sorted(others)) for number in range(more + 1) for others in combinations(seen, number))
    assert expected_cost(found, sizes, costs, "split") == min(expected_cost(r, sizes, costs, "split") for r in every)


@settings(deadline=None)
@given(counts(300), COSTS, ABOVE)
def test_more_rungs_never_cost_more_and_the_cost_is_said_right(sizes: dict[int, int], costs: Costs, above: str) -> None:
    by_size = ladders_by_size(sizes, 12, 300, costs, above)
    assert all(later <= earlier for (earlier, _), (later, _) in zip(by_size, by_size[1:], strict=False))
    assert all(cost == expected_cost(rungs, sizes, costs, above) for cost, rungs in by_size)


def test_thousands_of_sizes_take_seconds_not_minutes() -> None:
    sizes = {rows: 1 + rows % 7 for rows in range(1, 1500)}
    assert len(cheapest_rungs(sizes, 24, 8192, Costs(), "eager")) == 24


def test_too_few_rungs_are_an_error() -> None:
    with pytest.raises(Dsv41cError, match="DSV41C-E0402"):
        cheapest_rungs({5: 1}, 2, 8, Costs(), "eager")
