"""Attention: native equals reference; rows, chunks, slot order and pads leave no trace; rows without keys."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dsv41c.compiler.ops.catalog import OPS
from dsv41c.compiler.ops.rows import RowColumn
from tests.unit.compiler.ops.row_laws import assert_fake_matches, assert_same_bits
from tests.unit.compiler.ops.slot_steps import (
    NUM_SLOTS,
    PAD,
    Chunk,
    assert_close,
    assert_schedule_invariant,
    bodies,
    gather,
    normal,
    schedules,
    step_rows,
)

HEADS, WIDTH, WINDOW, RING, TOPK, RATIO = 3, 40, 4, 6, 5, 2
PER_PAGE, PAGES = 4, 4
LENGTHS = (7, 3, 15)
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])


def per_slot(seed: int, *shape: int, dtype: torch.dtype) -> list[Tensor]:
    return [normal(seed + slot, n, *shape, dtype=dtype) for slot, n in enumerate(LENGTHS)]


def selections(seed: int) -> list[Tensor]:
    """Per row up to TOPK of the visible entries, ascending, padded with -1 in front or behind."""
    generator = torch.Generator().manual_seed(seed)
    tables = []
    for n in LENGTHS:
        rows = []
        for t in range(n):
            visible = (t + 1) // RATIO
            chosen = torch.randperm(visible, generator=generator)[
                : torch.randint(TOPK + 1, (), generator=generator)
            ]
            padding = torch.full((TOPK - len(chosen),), -1)
            parts = [chosen.sort().values, padding]
            rows.append(torch.cat(parts if t % 3 else parts[::-1]))
        tables.append(torch.stack(rows).int())
    return tables


def pages(seed: int) -> Tensor:
    """A page table that scatters each slot's pages; the trash slot has none."""
    table = torch.randperm(NUM_SLOTS * PAGES, generator=torch.Generator().manual_seed(seed)).view(
        NUM_SLOTS, PAGES
    )
    return torch.cat((table, torch.full((1, PAGES), NUM_SLOTS * PAGES))).int()


def pool(seed: int, dtype: torch.dtype) -> Tensor:
    return normal(seed, NUM_SLOTS * PAGES + 1, PER_PAGE, WIDTH, dtype=dtype)


def ring(dtype: torch.dtype) -> Tensor:
    """Rubbish that only position arithmetic may keep out."""
    return torch.full((NUM_SLOTS + 1, RING, WIDTH), float("nan"), dtype=dtype)


SINK = torch.tensor([0.3, float("-inf"), 2.0])


@DTYPES
@settings(max_examples=12, deadline=None)
@given(data=st.data(), seed=st.integers(0, 999))
def test_sparse_attention_schedules(dtype: torch.dtype, data: st.DataObject, seed: int) -> None:
    attention, reference = bodies("sparse_attention")
    commit = bodies("window_commit")[0]
    compressed, page_table = pool(seed, dtype), pages(seed)

    def call(rows: Tensor, q: Tensor, kv: Tensor, selected: Tensor, window: Tensor) -> Tensor:
        arguments = (q, kv, window, compressed, page_table, selected, SINK, rows, WINDOW, RATIO, WIDTH**-0.5)
        out: Tensor = attention(*arguments)
        kept = rows[:, RowColumn.SLOT] < NUM_SLOTS
        if kept.any():
            assert_close(out[kept], reference(*arguments)[kept])
        commit(kv, rows, window)
        return out

    values = [
        per_slot(seed, HEADS, WIDTH, dtype=dtype),
        per_slot(seed + 9, WIDTH, dtype=dtype),
        selections(seed),
    ]
    assert_schedule_invariant(data.draw(schedules(LENGTHS)), LENGTHS, call, values, [ring(dtype)])


@DTYPES
@settings(max_examples=12, deadline=None)
@given(data=st.data(), seed=st.integers(0, 999))
def test_window_attention_schedules(dtype: torch.dtype, data: st.DataObject, seed: int) -> None:
    attention, reference = bodies("window_attention")
    commit = bodies("window_commit")[0]

    def call(rows: Tensor, q: Tensor, kv: Tensor, window: Tensor) -> Tensor:
        out: Tensor = attention(q, kv, window, SINK, rows, WINDOW, WIDTH**-0.5)
        kept = rows[:, RowColumn.SLOT] < NUM_SLOTS
        if kept.any():
            assert_close(out[kept], reference(q, kv, window, SINK, rows, WINDOW, WIDTH**-0.5)[kept])
        commit(kv, rows, window)
        return out

    values = [per_slot(seed, HEADS, WIDTH, dtype=dtype), per_slot(seed + 9, WIDTH, dtype=dtype)]
    assert_schedule_invariant(data.draw(schedules(LENGTHS)), LENGTHS, call, values, [ring(dtype)])


@DTYPES
def test_draft_rows_see_their_block_and_the_window_before_it(dtype: torch.dtype) -> None:
    native, reference = bodies("draft_attention")
    q, kv = per_slot(1, HEADS, WIDTH, dtype=dtype), per_slot(5, WIDTH, dtype=dtype)
    window = normal(8, NUM_SLOTS + 1, RING, WIDTH, dtype=dtype)
    step = (Chunk(2, 9, 3), PAD, Chunk(0, 2, 3), Chunk(1, 0, 3), PAD)
    arguments = (gather(step, q), gather(step, kv), window, SINK, step_rows(step), WINDOW, WIDTH**-0.5)
    out = native(*arguments)
    real = step_rows(step)[:, RowColumn.SLOT] < NUM_SLOTS
    assert_close(out[real], reference(*arguments)[real])
    first = 0
    for chunk in step:
        if chunk.count:
            alone = native(
                gather((chunk,), q),
                gather((chunk,), kv),
                window,
                SINK,
                step_rows((chunk,)),
                WINDOW,
                WIDTH**-0.5,
            )
            assert_same_bits(out[first : first + chunk.count], alone, f"draft block of slot {chunk.slot}")
        first += max(chunk.count, 1)
    block = gather((step[0],), kv).float()
    keys = torch.cat((torch.stack([window[2, u % RING].float() for u in range(5, 9)]), block))
    weights = (gather(step, q)[0, 1].float() @ keys.T * WIDTH**-0.5).softmax(-1)  # head 1 has no sink
    assert torch.allclose(out[0, 1].float(), weights @ keys, atol=2e-2 if dtype == torch.bfloat16 else 1e-5)


SELECTED_FORMS = {
    "leading holes": [-1, -1, 0, 1, 3],
    "only the last": [-1, -1, -1, -1, 2],
    "none": [-1] * 5,
    "all": [0, 1, 2, 3, 4],
    "hole inside": [0, -1, 2, -1, 4],
}


@DTYPES
@pytest.mark.parametrize("floor", [0, 99], ids=["window", "no window"])
@pytest.mark.parametrize("sink", [0.0, float("-inf"), 1e30], ids=["sink", "no sink", "huge sink"])
@pytest.mark.parametrize("form", SELECTED_FORMS)
def test_selections_with_holes_stay_finite(dtype: torch.dtype, floor: int, sink: float, form: str) -> None:
    rows = step_rows((Chunk(1, 12, 1),))
    rows[:, RowColumn.FLOOR] = floor
    selected = torch.tensor([SELECTED_FORMS[form]], dtype=torch.int32)
    arguments = (
        normal(1, 1, HEADS, WIDTH, dtype=dtype),
        normal(2, 1, WIDTH, dtype=dtype),
        normal(3, NUM_SLOTS + 1, RING, WIDTH, dtype=dtype),
        pool(4, dtype),
        pages(5),
        selected,
        torch.full((HEADS,), sink),
        rows,
        WINDOW,
        RATIO,
        WIDTH**-0.5,
    )
    native, reference = bodies("sparse_attention")
    out = native(*arguments)
    assert out.isfinite().all()
    assert_close(out, reference(*arguments))
    if (floor and form == "none") or sink == 1e30:
        assert (out == 0).all()
    else:
        assert (out != 0).any()


def test_two_halves_of_the_keys_merge_to_the_whole() -> None:
    q, kv = normal(1, 1, HEADS, WIDTH), normal(2, 1, WIDTH)
    window, compressed, table = normal(3, NUM_SLOTS + 1, RING, WIDTH), pool(4, torch.float32), pages(5)
    rows = step_rows((Chunk(1, 12, 1),))
    none = torch.full((HEADS,), float("-inf"))
    chosen = torch.tensor([[0, 1, 3, 4, 5]], dtype=torch.int32)
    native = bodies("sparse_attention")[0]

    def part(floor: int, selected: Tensor, sink: Tensor) -> Tensor:
        cut = rows.clone()
        cut[:, RowColumn.FLOOR] = floor
        out: Tensor = native(q, kv, window, compressed, table, selected, sink, cut, WINDOW, RATIO, 0.2)
        return out[0].double()

    def mass(floor: int, selected: Tensor) -> Tensor:
        """Sum of exp(score) over the part's keys, read from how much a sink of 0 takes away."""
        share = part(floor, selected, torch.zeros(HEADS)).norm(dim=-1) / part(floor, selected, none).norm(
            dim=-1
        )
        return (share / (1 - share)).unsqueeze(-1)

    nothing = torch.full_like(chosen, -1)
    halves = [(0, nothing), (99, chosen)]
    merged = sum(part(*h, none) * mass(*h) for h in halves) / sum(mass(*h) for h in halves)
    assert torch.allclose(merged, part(0, chosen, none), atol=1e-5)


def test_wrong_tensors_are_refused() -> None:
    from dsv41c.runtime.plan.errors import Dsv41cError

    rows = step_rows((Chunk(1, 12, 1),))
    call = bodies("window_attention")[0]
    with pytest.raises(Dsv41cError, match="window of 3 positions, needed at least 4"):
        call(normal(1, 1, HEADS, WIDTH), normal(2, 1, WIDTH), normal(3, 4, 3, WIDTH), SINK, rows, WINDOW, 1.0)
    with pytest.raises(Dsv41cError, match="window_kv"):
        call(normal(1, 1, HEADS, WIDTH), normal(2, 2, WIDTH), ring(torch.float32), SINK, rows, WINDOW, 1.0)


def test_fakes() -> None:
    q, kv, rows = normal(1, 1, HEADS, WIDTH), normal(2, 1, WIDTH), step_rows((Chunk(1, 12, 1),))
    window = normal(3, NUM_SLOTS + 1, RING, WIDTH)
    selected = torch.zeros((1, TOPK), dtype=torch.int32)
    for name in ("window_attention", "draft_attention"):
        assert_fake_matches(OPS[name].fake, OPS[name].reference, q, kv, window, SINK, rows, WINDOW, 1.0)
    assert_fake_matches(
        OPS["sparse_attention"].fake,
        OPS["sparse_attention"].reference,
        q,
        kv,
        window,
        pool(4, torch.float32),
        pages(5),
        selected,
        SINK,
        rows,
        WINDOW,
        RATIO,
        1.0,
    )
