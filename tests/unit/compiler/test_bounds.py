"""The bound of kept rows holds for every step that a scheduler may make, and some step reaches it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv41c.compiler.bounds import method_bounds, suffix_bound
from dsv41c.compiler.options import CompileOptions
from dsv41c.runtime.plan.errors import Dsv41cError

LIMITS = st.tuples(st.integers(1, 9000), st.integers(1, 600), st.none() | st.integers(1, 600), st.integers(0, 7))


@given(LIMITS, st.data())
def test_no_step_keeps_more(limits: tuple[int, int, int | None, int], data: st.DataObject) -> None:
    tokens, seqs, keep, drafts = limits
    room, kept = tokens, 0
    for _ in range(min(seqs, 20)):
        is_prompt = data.draw(st.booleans())
        count = data.draw(st.integers(0, room)) if is_prompt else min(room, data.draw(st.integers(1, 1 + drafts)))
        kept += min(count, keep) if is_prompt and keep is not None else count
        room -= count
    assert kept <= suffix_bound(*limits)


@given(LIMITS)
def test_some_step_reaches_it(limits: tuple[int, int, int | None, int]) -> None:
    tokens, seqs, keep, drafts = limits
    each = tokens if keep is None else max(keep, 1 + drafts)
    room, kept = tokens, 0
    for _ in range(seqs):
        kept, room = kept + min(each, room), room - min(each, room)
    assert kept == suffix_bound(*limits)


@given(LIMITS)
def test_it_never_falls_as_a_limit_grows(limits: tuple[int, int, int | None, int]) -> None:
    tokens, seqs, keep, drafts = limits
    more = (None if keep is None else keep + 1)
    bound = suffix_bound(*limits)
    for grown in ((tokens + 1, seqs, keep, drafts), (tokens, seqs + 1, keep, drafts), (tokens, seqs, more, drafts),
                  (tokens, seqs, keep, drafts + 1), (tokens, seqs, None, drafts)):
        assert suffix_bound(*grown) >= bound


@pytest.mark.parametrize("limits", [(0, 1, None, 0), (1, 0, None, 0), (1, 1, 0, 0), (1, 1, None, -1)])
def test_no_count_is_an_error(limits: tuple[int, int, int | None, int]) -> None:
    with pytest.raises(Dsv41cError, match="DSV41C-E0402"):
        suffix_bound(*limits)


@pytest.mark.parametrize(("values", "bounds"), [
    ({}, {"decode": 16, "encoder": 512, "decoder": 512, "head": 16}),
    ({"draft_len": 3}, {"decode": 64, "encoder": 512, "decoder": 512, "head": 64, "draft": 16}),
    ({"draft_len": 3, "max_num_batched_tokens": 40},
     {"decode": 40, "encoder": 40, "decoder": 40, "head": 40, "draft": 16}),
    ({"draft_len": 3, "suffix_mode": "compact", "suffix_keep_tokens": 12},
     {"decode": 64, "encoder": 512, "decoder": 192, "head": 64, "draft": 16}),
])
def test_a_request_that_verifies_has_a_row_for_each_draft(values: dict[str, Any], bounds: dict[str, int]) -> None:
    assert method_bounds(CompileOptions(**values)) == bounds
