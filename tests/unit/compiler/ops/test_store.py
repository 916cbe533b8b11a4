"""Rings, compressor pairs, pools: any schedule leaves the same bytes; pads and trash are never written."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dsv41c.compiler.ops.catalog import OPS
from dsv41c.compiler.ops.rows import RowColumn, RowFlag
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
    one_by_one,
    run_schedule,
    schedules,
    step_rows,
)

WIDTH, RING, PAIR_RING, BLOCK, PAGES = 24, 6, 3, 8, 3
LENGTHS = (7, 2, 17)  # the last is far longer than the rings
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
BODIES = pytest.mark.parametrize("body", [0, 1], ids=["native", "reference"])


def per_slot(
    seed: int, lengths: tuple[int, ...] = LENGTHS, dtype: torch.dtype = torch.float32
) -> list[Tensor]:
    return [normal(seed + slot, n, WIDTH, dtype=dtype) for slot, n in enumerate(lengths)]


def rings(width: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.full((NUM_SLOTS + 1, width, WIDTH), -7.0, dtype=dtype)


def pairs() -> Tensor:
    return torch.full((NUM_SLOTS + 1, PAIR_RING, 2, WIDTH), float("nan"))


def page_table() -> Tensor:
    order = torch.randperm(NUM_SLOTS * PAGES, generator=torch.Generator().manual_seed(3)).view(
        NUM_SLOTS, PAGES
    )
    return torch.cat((order, torch.full((1, PAGES), NUM_SLOTS * PAGES))).int()


@DTYPES
@BODIES
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_window_commit_schedules(body: int, dtype: torch.dtype, data: st.DataObject) -> None:
    call = bodies("window_commit")[body]
    kv = per_slot(1, dtype=dtype)
    state = [rings(RING, dtype)]
    steps = data.draw(schedules(LENGTHS))
    assert_schedule_invariant(steps, LENGTHS, lambda rows, kv, window: call(kv, rows, window), [kv], state)
    _, (window,) = run_schedule(steps, lambda rows, kv, window: call(kv, rows, window), [kv], state)
    for slot, n in enumerate(LENGTHS):
        for t in range(n):
            if t >= n - RING:
                assert_same_bits(window[slot, t % RING], kv[slot][t], f"slot {slot} position {t}")


@DTYPES
@settings(max_examples=20, deadline=None)
@given(data=st.data(), seed=st.integers(0, 999))
def test_compress_pairs_schedules(dtype: torch.dtype, data: st.DataObject, seed: int) -> None:
    native, reference = bodies("compress_pairs")

    def call(rows: Tensor, kv: Tensor, gate: Tensor, pair: Tensor) -> Tensor:
        before = pair.clone()
        out: Tensor = native(kv, gate, rows, pair, dtype)
        kept = rows[:, RowColumn.SLOT] < NUM_SLOTS
        want = reference(kv, gate, rows, before, dtype)
        if kept.any():
            assert_close(out[kept], want[kept])
        assert_same_bits(pair, before, "pair ring")
        assert (out[rows[:, RowColumn.POSITION] % 2 == 0] == 0).all()
        return out

    assert_schedule_invariant(
        data.draw(schedules(LENGTHS)), LENGTHS, call, [per_slot(seed), per_slot(seed + 5)], [pairs()]
    )


def test_compress_pairs_is_a_softmax_of_two() -> None:
    kv, gate = per_slot(1), per_slot(5)
    rows = step_rows((Chunk(0, 0, 6),))
    out = bodies("compress_pairs")[0](kv[0][:6], gate[0][:6], rows, pairs(), torch.float32)
    share = 1 / (1 + (gate[0][0:6:2].double() - gate[0][1:6:2]).exp())
    want = (1 - share) * kv[0][0:6:2] + share * kv[0][1:6:2]
    assert torch.allclose(out[1::2].double(), want, atol=1e-6)


def test_equal_and_extreme_gates() -> None:
    kv = torch.tensor([[1.0], [3.0]]).expand(2, WIDTH).contiguous()
    rows = step_rows((Chunk(0, 0, 2),))
    for low, high, want in ((0.0, 0.0, 2.0), (-3e38, 3e38, 3.0), (1e4, -1e4, 1.0)):
        gate = torch.tensor([[low], [high]]).expand(2, WIDTH).contiguous()
        for call in bodies("compress_pairs"):
            assert (call(kv, gate, rows, pairs(), torch.float32)[1] == want).all()


@DTYPES
@BODIES
@pytest.mark.parametrize("ratio", [1, 2])
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_entry_store_schedules(ratio: int, body: int, dtype: torch.dtype, data: st.DataObject) -> None:
    store = bodies("entry_store")[body]
    table = page_table()
    entry = per_slot(1, dtype=dtype)
    pool = torch.full((NUM_SLOTS * PAGES + 1, BLOCK // ratio, WIDTH), -7.0, dtype=dtype)
    steps = data.draw(schedules(LENGTHS))

    def call(rows: Tensor, entry: Tensor, pool: Tensor) -> None:
        store(entry, rows, table, pool, ratio)

    assert_schedule_invariant(steps, LENGTHS, call, [entry], [pool])
    _, (stored,) = run_schedule(steps, call, [entry], [pool])
    for slot, n in enumerate(LENGTHS):
        for j in range(n // ratio):
            got = stored[table[slot, j * ratio // BLOCK], j % (BLOCK // ratio)]
            assert_same_bits(got, entry[slot][(j + 1) * ratio - 1], f"slot {slot} entry {j}")


@BODIES
@pytest.mark.parametrize("ratio", [1, 2])
@pytest.mark.parametrize("prompt", [1, 2, 3, 4, 5, RING - 1, RING, RING + 1])
def test_short_prompts_then_decode_store_every_complete_group(prompt: int, ratio: int, body: int) -> None:
    """Groups complete by position, not by how full a fixed-size ring or a padded batch is."""
    store, compress = bodies("entry_store")[body], bodies("compress_pairs")[body]
    table, total = page_table(), prompt + 4
    kv, gate = per_slot(1, (total,) * 3), per_slot(5, (total,) * 3)
    pool, pair = torch.full((NUM_SLOTS * PAGES + 1, BLOCK // ratio, WIDTH), -7.0), pairs()
    steps = [(Chunk(1, 0, prompt), PAD, PAD), *[(PAD, Chunk(1, t, 1)) for t in range(prompt, total)]]
    for done, step in enumerate(steps, start=prompt):
        rows = step_rows(step)
        latent = gather(step, kv)
        if ratio == 2:
            latent = compress(gather(step, kv), gather(step, gate), rows, pair, torch.float32)
        store(latent, rows, table, pool, ratio)
        assert int((pool != -7.0).all(-1).sum()) == done // ratio
    assert pool.isfinite().all()


@BODIES
@pytest.mark.parametrize("ratio", [1, 2])
def test_replayed_rows_reach_windows_only(body: int, ratio: int) -> None:
    """They read no partner either: the pair ring of a placed slot holds an earlier request's."""
    store, compress, commit = (bodies(op)[body] for op in ("entry_store", "compress_pairs", "window_commit"))
    table, pool, pair = page_table(), torch.full((NUM_SLOTS * PAGES + 1, BLOCK // ratio, WIDTH), -7.0), pairs()
    window, before = rings(RING), pairs()
    kv, gate = normal(1, 8, WIDTH), normal(2, 8, WIDTH)
    rows = step_rows((Chunk(1, 3, 8),))
    rows[:5, RowColumn.FLAGS] = RowFlag.REPLAY  # positions 3 to 7; 8 to 10 are new
    latent = compress(kv, gate, rows, pair, torch.float32)
    assert (latent[:5] == 0).all() and latent.isfinite().all() and (latent[6] != 0).all()
    assert_same_bits(pair[[0, 2, 3]], before[[0, 2, 3]], "pairs of others")
    for t in (8, 9, 10):
        assert_same_bits(pair[1, t % PAIR_RING], torch.stack((kv[t - 3], gate[t - 3])), f"pair {t}")
    store(kv, rows, table, pool, ratio)
    stored = [j for j in range(BLOCK * PAGES // ratio)
              if (pool[table[1, j * ratio // BLOCK], j % (BLOCK // ratio)] != -7.0).all()]
    assert stored == ([8, 9, 10] if ratio == 1 else [4]) and int((pool != -7.0).all(-1).sum()) == len(stored)
    commit(kv, rows, window)
    assert_same_bits(window[1, 5 % RING], kv[2], "window of a replayed row")
    only = rows[:5].clone()
    only[:, RowColumn.COUNT] = 5
    before = pair.clone()
    compress(kv[:5], gate[:5], only, pair, torch.float32)
    assert_same_bits(pair, before, "pairs behind replayed rows alone")


@BODIES
def test_unmapped_pages_and_pads_write_nothing(body: int) -> None:
    table = torch.full((NUM_SLOTS + 1, PAGES), 2, dtype=torch.int32)
    pool = torch.full((3, BLOCK, WIDTH), -7.0)
    rows = step_rows((Chunk(0, 0, 3), PAD))
    bodies("entry_store")[body](normal(1, 4, WIDTH), rows, table, pool, 1)
    assert (pool == -7.0).all(), "page 2 is the trash page"
    rows[:, RowColumn.FLAGS] = RowFlag.PAD
    window, pair = rings(RING), pairs()
    bodies("window_commit")[body](normal(1, 4, WIDTH), rows, window)
    bodies("compress_pairs")[body](normal(1, 4, WIDTH), normal(2, 4, WIDTH), rows, pair, torch.float32)
    assert (window == -7.0).all() and pair.isnan().all()


def test_native_bytes_equal_reference_bytes() -> None:
    kv = per_slot(1)
    ends = [
        run_schedule(
            one_by_one(LENGTHS), lambda rows, kv, w, call=call: call(kv, rows, w), [kv], [rings(RING)]
        )[1]
        for call in bodies("window_commit")
    ]
    assert_same_bits(ends[0][0], ends[1][0], "window")


def test_fakes() -> None:
    rows, kv = step_rows((Chunk(0, 0, 3),)), normal(1, 3, WIDTH)
    pool = torch.zeros((NUM_SLOTS * PAGES + 1, BLOCK, WIDTH))
    cases = {
        "window_commit": (kv, rows, rings(RING)),
        "compress_pairs": (kv, kv, rows, pairs(), torch.bfloat16),
        "entry_store": (kv, rows, page_table(), pool, 1),
    }
    for name, arguments in cases.items():
        assert_fake_matches(OPS[name].fake, OPS[name].reference, *arguments)
        assert OPS[name].mutates
