"""Bucket ladders: laws that every ladder holds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv41c.graphs.buckets import ladder, prefill_ladder
from dsv41c.runtime.plan.errors import Dsv41cError


@given(st.integers(1, 70_000))
def test_rungs_ascend_from_one_to_the_bound(largest: int) -> None:
    rungs = ladder(largest)
    assert rungs[0] == 1 and rungs[-1] == largest
    assert list(rungs) == sorted(set(rungs))
    assert {1, 2, 3} & set(range(1, largest + 1)) <= set(rungs)


@given(st.integers(1, 70_000), st.data())
def test_padding_stays_below_half_of_what_is_launched(largest: int, data: st.DataObject) -> None:
    rows = data.draw(st.integers(1, largest))
    rung = next(r for r in ladder(largest) if r >= rows)
    assert rung - rows < max(rung / 2, 1)


@given(st.integers(1, 65_536))
def test_a_prefill_ladder_leaves_room_for_an_eager_step_of_twice_its_top(bound: int) -> None:
    assert prefill_ladder(bound)[-1] * 2 <= max(bound, 2)


def test_no_rows_is_an_error() -> None:
    with pytest.raises(Dsv41cError, match="DSV41C-E0402"):
        ladder(0)
