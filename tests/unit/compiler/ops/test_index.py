"""Index selection: exact ties, candidate blocks, the forced newest block, and rows that leave no trace."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dsv41c.compiler.ops.catalog import OPS
from dsv41c.compiler.ops.rows import RowColumn
from tests.unit.compiler.ops.row_laws import assert_fake_matches, assert_row_invariant
from tests.unit.compiler.ops.slot_steps import NUM_SLOTS, PAD_ROW, Chunk, bodies, normal, step_rows

HEADS, WIDTH, PER_PAGE, PAGES = 2, 40, 4, 8
CAPACITY = PER_PAGE * PAGES
SCALE = 0.125
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])


class Inputs(NamedTuple):
    """The first five arguments of every index op."""

    q: Tensor
    weights: Tensor
    keys: Tensor
    page_table: Tensor
    rows: Tensor

    def scores(self, i: int) -> Tensor:
        """Scores of all entries that row i's slot maps, in float64."""
        keys = self.keys[self.page_table[self.rows[i, RowColumn.SLOT]].long()].flatten(0, 1).double()
        match = (self.q[i].double() @ keys.T).clamp_min(0)
        return (self.weights[i].double() * SCALE) @ match

    def visible(self, i: int, ratio: int) -> int:
        return (int(self.rows[i, RowColumn.POSITION]) + 1) // ratio


def inputs(seed: int, dtype: torch.dtype, ratio: int, whole_numbers: bool = True) -> Inputs:
    """Small whole numbers make every score exact in float32, and ties common."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(NUM_SLOTS * PAGES, generator=generator).view(NUM_SLOTS, PAGES)
    table = torch.cat((order, torch.full((1, PAGES), NUM_SLOTS * PAGES))).int()
    last = CAPACITY * ratio - 1
    spots = torch.randint(last, (2,), generator=generator).tolist()
    rows = step_rows(
        (
            Chunk(1, spots[0], 1),
            Chunk(2, last, 1),
            Chunk(NUM_SLOTS, 0, 0),
            Chunk(0, spots[1], 1),
            Chunk(2, 0, 1),
        )
    )
    parts = [
        normal(seed, len(rows), HEADS, WIDTH),
        normal(seed + 1, len(rows), HEADS),
        normal(seed + 2, NUM_SLOTS * PAGES + 1, PER_PAGE, WIDTH),
    ]
    if whole_numbers:
        parts = [(p * scale).round() for p, scale in zip(parts, (0.6, 1.0, 0.4), strict=True)]
    return Inputs(parts[0].to(dtype), parts[1], parts[2].to(dtype), table, rows)


def best(scores: list[float], k: int) -> list[int]:
    """The definition: score descending, id ascending, then the chosen ids ascending."""
    return sorted(sorted(range(len(scores)), key=lambda j: (-scores[j], j))[:k])


def listed(row: Tensor) -> list[int]:
    """The ids of a padded row; padding stands only at the end."""
    ids: list[int] = row.tolist()
    kept = [j for j in ids if j >= 0]
    assert ids == kept + [-1] * (len(ids) - len(kept))
    return kept


@DTYPES
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 9999), ratio=st.sampled_from([1, 2]), topk=st.sampled_from([1, 3, 7, 40]))
def test_topk_with_exact_ties(dtype: torch.dtype, seed: int, ratio: int, topk: int) -> None:
    x = inputs(seed, dtype, ratio)
    native, reference = bodies("index_topk")
    selected = native(*x, topk, ratio, SCALE)
    assert torch.equal(selected, reference(*x, topk, ratio, SCALE))
    for i in range(len(x.rows)):
        assert listed(selected[i]) == best(x.scores(i)[: x.visible(i, ratio)].tolist(), topk)


@DTYPES
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 9999), block=st.sampled_from([1, 3, 4, 64]), count=st.sampled_from([1, 2, 5]))
def test_candidate_blocks(dtype: torch.dtype, seed: int, block: int, count: int) -> None:
    x = inputs(seed, dtype, 1)
    native, reference = bodies("index_topk_blocks")
    selected, blocks = native(*x, 6, 1, SCALE, block, count)
    want_selected, want_blocks = reference(*x, 6, 1, SCALE, block, count)
    assert torch.equal(selected, want_selected) and torch.equal(blocks, want_blocks)
    assert torch.equal(selected, bodies("index_topk")[0](*x, 6, 1, SCALE)), (
        "the selection itself is unrestricted"
    )
    for i in range(len(x.rows)):
        scores = x.scores(i)[: x.visible(i, 1)].tolist()
        tops = [max(scores[b : b + block]) for b in range(0, len(scores), block)]
        tops[-1] = float("inf")
        assert listed(blocks[i]) == best(tops, count)
    other = inputs(seed + 77, dtype, 1)._replace(keys=x.keys, page_table=x.page_table, rows=x.rows)
    within, within_reference = bodies("index_topk_within")
    found = within(*other, blocks, 4, 1, SCALE, block)
    assert torch.equal(found, within_reference(*other, blocks, 4, 1, SCALE, block))
    for i in range(len(x.rows)):
        allowed = [j for j in range(x.visible(i, 1)) if j // block in listed(blocks[i])]
        assert listed(found[i]) == [allowed[k] for k in best(other.scores(i)[allowed].tolist(), 4)]


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 9999), topk=st.sampled_from([1, 5, 50]))
def test_blocks_that_cover_everything_change_nothing(seed: int, topk: int) -> None:
    x = inputs(seed, torch.float32, 1, whole_numbers=False)
    _, blocks = bodies("index_topk_blocks")[0](*x, topk, 1, SCALE, 4, CAPACITY // 4)
    within = bodies("index_topk_within")[0](*x, blocks, topk, 1, SCALE, 4)
    assert torch.equal(within, bodies("index_topk")[0](*x, topk, 1, SCALE))


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 9999))
def test_real_scores_select_within_rounding(seed: int) -> None:
    x = inputs(seed, torch.float32, 1, whole_numbers=False)
    selected = bodies("index_topk")[0](*x, 7, 1, SCALE)
    for i in range(len(x.rows)):
        scores, chosen = x.scores(i)[: x.visible(i, 1)], listed(selected[i])
        assert len(chosen) == min(7, len(scores))
        wanted = scores.sort(descending=True).values[: len(chosen)]
        assert torch.allclose(scores[chosen].sort(descending=True).values, wanted, atol=1e-5)


@pytest.mark.parametrize("body", [0, 1], ids=["native", "reference"])
def test_all_scores_zero_keep_the_oldest_and_the_newest_block(body: int) -> None:
    x = inputs(1, torch.float32, 1)
    x = x._replace(q=torch.zeros_like(x.q), rows=step_rows((Chunk(0, 29, 5),))[:5])
    x.rows[:, RowColumn.POSITION] = 29
    selected, blocks = bodies("index_topk_blocks")[body](*x, 4, 1, SCALE, 4, 3)
    assert selected.tolist() == [[0, 1, 2, 3]] * 5
    assert blocks.tolist() == [[0, 1, 7]] * 5
    assert (
        bodies("index_topk_within")[body](*x, blocks, 9, 1, SCALE, 4).tolist()
        == [[0, 1, 2, 3, 4, 5, 6, 7, 28]] * 5
    )


@pytest.mark.parametrize("body", [0, 1], ids=["native", "reference"])
def test_negative_scores_lose_to_exact_zeros(body: int) -> None:
    x = inputs(1, torch.float32, 1)
    keys = torch.full_like(x.keys, -1.0)
    keys[x.page_table[0, 1], 2] = 1.0  # entry 6: the only match, with a negative weight
    x = x._replace(q=torch.ones_like(x.q), weights=-torch.ones_like(x.weights), keys=keys)
    x.rows[:] = torch.tensor([0, 7, 7, 0, 1, 0, 0, 0])
    assert bodies("index_topk")[body](*x, 7, 1, SCALE)[0].tolist() == [0, 1, 2, 3, 4, 5, 7]


@pytest.mark.parametrize("body", [0, 1], ids=["native", "reference"])
def test_nan_scores_come_last(body: int) -> None:
    x = inputs(1, torch.float32, 1)
    keys = torch.zeros_like(x.keys)
    keys[x.page_table[0, 0], :3] = float("nan")
    x = x._replace(keys=keys, q=torch.ones_like(x.q), weights=torch.ones_like(x.weights))
    x.rows[:] = torch.tensor([0, 7, 7, 0, 1, 0, 0, 0])
    selected, blocks = bodies("index_topk_blocks")[body](*x, 6, 1, SCALE, 2, 3)
    assert selected[0].tolist() == [0, 3, 4, 5, 6, 7] and blocks[0].tolist() == [1, 2, 3]
    x.q.fill_(float("nan"))
    assert bodies("index_topk")[body](*x, 6, 1, SCALE)[0].tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("body", [0, 1], ids=["native", "reference"])
def test_no_complete_group_selects_nothing(body: int) -> None:
    x = inputs(1, torch.float32, 2)
    x.rows[:] = torch.tensor([0, 0, 0, 0, 1, 0, 0, 0])
    selected, blocks = bodies("index_topk_blocks")[body](*x, 3, 2, SCALE, 4, 2)
    assert (selected == -1).all() and (blocks == -1).all()
    assert (bodies("index_topk_within")[body](*x, blocks, 3, 2, SCALE, 4) == -1).all()


@DTYPES
def test_rows_leave_no_trace(dtype: torch.dtype) -> None:
    x = inputs(5, dtype, 1, whole_numbers=False)
    topk, blocks_op, within = (bodies(f"index_{name}")[0] for name in ("topk", "topk_blocks", "topk_within"))

    def call(q: Tensor, weights: Tensor, rows: Tensor) -> tuple[Tensor, ...]:
        y = Inputs(q, weights, x.keys, x.page_table, rows)
        selected, blocks = blocks_op(*y, 3, 1, SCALE, 4, 2)
        return topk(*y, 3, 1, SCALE), selected, blocks, within(*y, blocks, 3, 1, SCALE, 4)

    nan = float("nan")
    pads = [
        torch.full_like(x.q[:1], nan),
        torch.full_like(x.weights[:1], nan),
        torch.tensor([PAD_ROW], dtype=torch.int32),
    ]
    assert_row_invariant(call, (x.q, x.weights, x.rows), pads=pads)


def test_large_contexts_select_exactly() -> None:
    """More entries than a simple scan keeps in registers, most of them tied."""
    per_page, pages, topk = 64, 40, 512
    keys = (normal(1, pages + 1, per_page, 8) * 0.5).round()
    table = torch.arange(pages, dtype=torch.int32).repeat(2, 1)
    rows = torch.tensor([[0, 2499, 2499, 0, 1, 0, 0, 0]], dtype=torch.int32)
    x = Inputs((normal(2, 1, 1, 8)).round(), torch.ones(1, 1), keys, table, rows)
    selected = bodies("index_topk")[0](*x, topk, 1, SCALE)
    assert listed(selected[0]) == best(x.scores(0)[:2500].tolist(), topk)


def test_fakes_and_tie_orders() -> None:
    x = inputs(1, torch.float32, 1)
    _, blocks = bodies("index_topk_blocks")[0](*x, 3, 1, SCALE, 4, 2)
    cases = {
        "index_topk": (3, 1, SCALE),
        "index_topk_blocks": (3, 1, SCALE, 4, 2),
        "index_topk_within": (blocks, 3, 1, SCALE, 4),
    }
    for name, rest in cases.items():
        assert_fake_matches(OPS[name].fake, OPS[name].reference, *x, *rest)
        assert OPS[name].tie_order
