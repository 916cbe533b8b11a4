"""Draft ops against formulas of their own; rows and groups stand alone."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv41c.compiler.ops.catalog import OPS
from dsv41c.compiler.ops.rows import RowFlag, read_rows
from tests.unit.compiler.ops.row_laws import assert_fake_matches, assert_row_invariant, assert_same_bits

OP = torch.ops.dsv41c
BLOCK, NOISE = 3, 95


def test_draft_rows_stand_behind_what_each_slot_has() -> None:
    """Groups in the order of the upload; -1 takes the slot's token; a pad group keeps its flag and the trash slot."""
    upload = torch.tensor([[1, 0, 40, 0, -1], [0, 0, -1, 0, -1], [2, 0, 0, RowFlag.START | RowFlag.PAD, -1]],
                          dtype=torch.int32)
    slot_token = torch.tensor([17, 18, 0], dtype=torch.int32)
    slot_position = torch.tensor([9, 4, 0], dtype=torch.int32)
    table = OP.draft_row_table(upload, slot_token, slot_position, BLOCK, NOISE)
    rows = read_rows(table)
    assert [(r.slot, r.position, r.token) for r in rows[:6]] == [
        (1, 4, 40), (1, 5, NOISE), (1, 6, NOISE), (0, 9, 17), (0, 10, NOISE), (0, 11, NOISE)]
    assert [(r.base, r.first_row, r.group_size, r.floor) for r in rows[::BLOCK]] == [
        (4, 0, 3, 0), (9, 3, 3, 0), (0, 6, 3, 0)]
    assert [r.pad for r in rows] == [False] * 6 + [True] * 3
    assert {r.slot for r in rows[6:]} == {2}
    assert OP.golden_token(table, BLOCK).tolist() == [[40], [17], [0]]
    given = (upload, slot_token, slot_position, BLOCK, NOISE)
    assert_fake_matches(OPS["draft_row_table"].fake, OP.draft_row_table, *given)
    assert_fake_matches(OPS["golden_token"].fake, OP.golden_token, table, BLOCK)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_columns_are_joined_in_order(dtype: torch.dtype) -> None:
    a, b = torch.randn(3, 4), torch.randn(3, 2).bfloat16()
    got = OP.concat_columns([a, b], dtype)
    for i in range(3):
        assert_same_bits(got[i], torch.tensor([*a[i].to(dtype).tolist(), *b[i].tolist()], dtype=dtype), f"row {i}")
    assert_fake_matches(OPS["concat_columns"].fake, OP.concat_columns, [a, b], dtype)
    assert_row_invariant(lambda x, y: OP.concat_columns([x, y], dtype), [a, b])


def test_a_token_outside_the_table_has_a_zero_row() -> None:
    weight = torch.randn(5, 8).bfloat16()
    token = torch.tensor([[4], [0], [5], [-1]], dtype=torch.int32)
    got = OP.embed_token(token, weight)
    assert_same_bits(got[:2], weight[[4, 0]], "tokens of the table")
    assert not got[2:].any()
    assert_fake_matches(OPS["embed_token"].fake, OP.embed_token, token, weight)
    assert_row_invariant(lambda t: OP.embed_token(t, weight), [token])


def test_a_position_of_the_chain_reads_its_row_of_each_group() -> None:
    base, hidden = torch.randn(2 * BLOCK, 7), torch.randn(2 * BLOCK, 4).bfloat16()
    correction, bigram = torch.randn(2, 7), torch.randn(2, 3).bfloat16()
    for j in range(BLOCK):
        rows = [j, BLOCK + j]
        assert_same_bits(OP.markov_logits(base, correction, BLOCK, j), base[rows] + correction, f"logits {j}")
        joined = OP.confidence_input(hidden, bigram, BLOCK, j)
        assert_same_bits(joined[:, :4], hidden[rows].float(), f"hidden {j}")
        assert_same_bits(joined[:, 4:], bigram.float(), f"bigram {j}")
    assert_fake_matches(OPS["markov_logits"].fake, OP.markov_logits, base, correction, BLOCK, 1)
    assert_fake_matches(OPS["confidence_input"].fake, OP.confidence_input, hidden, bigram, BLOCK, 1)


def test_the_lowest_of_equal_tokens_is_drafted_and_nan_never_wins() -> None:
    nan, inf = float("nan"), float("inf")
    logits = torch.tensor([[0.0, 2, 2, 1], [nan, -1, -1, nan], [nan] * 4, [-inf] * 4, [nan, -inf, -inf, -inf],
                           [1, nan, inf, inf]])
    assert OP.greedy_draft(logits).tolist() == [[1], [1], [0], [0], [1], [2]]
    assert_fake_matches(OPS["greedy_draft"].fake, OP.greedy_draft, logits)
    assert_row_invariant(OP.greedy_draft, [logits])


def test_sigmoid_of_a_row_does_not_depend_on_the_others() -> None:
    """Whole vectors and what is left behind them take the same exponential."""
    x = torch.linspace(-12, 12, 67).view(-1, 1)
    got = OP.sigmoid(x)
    for value, y in zip(x[:, 0].tolist(), got[:, 0].tolist(), strict=True):
        assert y == pytest.approx(1 / (1 + math.exp(-value)), rel=1e-6)
    assert_fake_matches(OPS["sigmoid"].fake, OP.sigmoid, x)
    assert_row_invariant(OP.sigmoid, [x])
    assert OP.sigmoid(x[:0]).shape == (0, 1)


@settings(deadline=None)
@given(st.data())
def test_the_native_bodies_are_their_references(data: st.DataObject) -> None:
    """Rows to the bit; an exponential may differ in its last one."""
    slots = data.draw(st.integers(1, 4))
    rows = data.draw(st.lists(st.tuples(st.integers(0, slots), st.integers(-1, 95)), min_size=1, max_size=5))
    upload = torch.tensor([[slot, 0, token, 0, -1] for slot, token in rows], dtype=torch.int32)
    state = (torch.arange(slots + 1, dtype=torch.int32) + 40, torch.arange(slots + 1, dtype=torch.int32) * 7)
    given_ = (upload, *state, BLOCK, NOISE)
    assert_same_bits(OP.draft_row_table(*given_), OPS["draft_row_table"].reference(*given_), "rows")
    x = torch.tensor(data.draw(st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=9))).view(-1, 1)
    torch.testing.assert_close(OP.sigmoid(x), OPS["sigmoid"].reference(x), rtol=3e-7, atol=0)
