"""Schedules of drafts: static takes all that has room, confidence the budget of the best rate, as a search finds it."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv41c.runtime.draft_schedule import ConfidenceSchedule, static_schedule
from dsv41c.runtime.plan.costs import costs_of, step_ns
from dsv41c.runtime.plan.schema import Ladder, Method

BLOCK = 3
LADDER = Ladder("explicit", "eager", 1000, 40, 5000)


def method(*rungs: int) -> Method:
    return Method("decode", "rows", "D", rungs, (), (), (), (), 0, LADDER)


CONFIDENCE = st.integers(1, 4).flatmap(lambda n: st.lists(
    st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0]) | st.floats(0, 1), min_size=BLOCK, max_size=BLOCK),
    min_size=n, max_size=n))
RUNGS = st.sets(st.integers(1, 20), min_size=1).map(lambda rungs: tuple(sorted(rungs)))


def rate(widths: tuple[int, ...], chances: np.ndarray, rungs: tuple[int, ...]) -> float:
    expected = sum(float(row[:width].sum()) for row, width in zip(chances, widths, strict=True))
    count = len(widths)
    return (count + expected) / step_ns(rungs, "eager", count + sum(widths), costs_of(LADDER))


@settings(deadline=None)
@given(values=CONFIDENCE, rungs=RUNGS, spare=st.integers(0, 12), data=st.data())
def test_no_choice_of_widths_is_better(values: list[list[float]], rungs: tuple[int, ...], spare: int,
                                       data: st.DataObject) -> None:
    confidence = np.array(values, np.float32)
    rooms = [data.draw(st.integers(0, BLOCK)) for _ in values]
    most = len(values) + spare
    widths = ConfidenceSchedule(method(*rungs), most)(confidence, rooms)
    assert all(0 <= width <= room for width, room in zip(widths, rooms, strict=True))
    assert len(values) + sum(widths) <= most
    chances = np.cumprod(confidence.astype(np.float64), axis=1)
    best = max(rate(each, chances, rungs) for each in itertools.product(*(range(room + 1) for room in rooms))
               if len(values) + sum(each) <= most)
    assert rate(tuple(widths), chances, rungs) == pytest.approx(best, rel=1e-12)


def test_of_equal_chances_the_earlier_request_is_granted_first() -> None:
    """Two drafts fit the rung beside two requests, of four that are sure."""
    schedule = ConfidenceSchedule(method(2, 4, 64), 64)
    assert schedule(np.ones((2, 2), np.float32), [2, 2]) == [2, 0]
    assert schedule(np.ones((2, 2), np.float32), [1, 2]) == [1, 1]


def test_a_confidence_that_is_no_number_is_none() -> None:
    confidence = np.array([[0.9, np.nan, 0.9], [np.nan, 0.9, 0.9]], np.float32)
    assert ConfidenceSchedule(method(1, 2, 3, 4, 5, 6, 7, 8), 8)(confidence, [3, 3]) == [1, 0]


def test_static_takes_all_that_has_room() -> None:
    assert static_schedule(np.zeros((3, BLOCK), np.float32), [3, 0, 1]) == [3, 0, 1]
