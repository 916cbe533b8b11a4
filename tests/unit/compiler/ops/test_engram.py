"""Engram: hashes by the published rule under any schedule, table rows bit by bit, the gate."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dsv41c.compiler.ops.catalog import OPS
from dsv41c.compiler.ops.rows import RowFlag
from tests.unit.compiler.ops.row_laws import assert_fake_matches, assert_row_invariant, assert_same_bits
from tests.unit.compiler.ops.slot_steps import (
    NUM_SLOTS,
    PAD_ROW,
    Chunk,
    assert_close,
    assert_schedule_invariant,
    bodies,
    normal,
    one_by_one,
    run_schedule,
    schedules,
    step_rows,
)

LENGTHS = (9, 1, 14)
NGRAM, HEADS, RING, VOCAB, PAD_TOKEN = 4, 2, 5, 96, 2
LAYERS = 2
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])

TOKEN_MAP = (torch.arange(VOCAB) * 7 % 40).int()
PRIMES = torch.tensor(
    [
        [[50 + 2 * (6 * layer + 2 * n + head) + 1 for head in range(HEADS)] for n in range(NGRAM - 1)]
        for layer in range(LAYERS)
    ]
)
OFFSETS = torch.cat((torch.zeros(LAYERS, 1, dtype=torch.int64), PRIMES.flatten(1).cumsum(-1)[:, :-1]), -1)
MULTIPLIERS = torch.stack(
    [
        torch.from_numpy(
            np.random.default_rng(10007 * layer).integers(0, (2**63 - 1) // 99092 // 2, NGRAM, dtype=np.int64)
            * 2
            + 1
        )
        for layer in (1, 14)
    ]
)
CONSTANTS = (TOKEN_MAP, MULTIPLIERS, PRIMES, OFFSETS)


def token_rows(seed: int) -> tuple[list[Tensor], list[Tensor]]:
    """Tokens and flags per slot; about every sixth row is an image."""
    rng = np.random.default_rng(seed)
    tokens = [torch.from_numpy(rng.integers(0, VOCAB, n)) for n in LENGTHS]
    flags = [torch.from_numpy((rng.integers(0, 6, n) == 0) * int(RowFlag.IMAGE)) for n in LENGTHS]
    return tokens, flags


def plain_hash(tokens: list[int], images: list[bool], t: int) -> list[list[int]]:
    """The rule on Python integers over one whole sequence."""
    ids = []
    for u in range(t, t - NGRAM, -1):
        hidden = u < 0 or any(images[u : t + 1])
        ids.append(int(TOKEN_MAP[PAD_TOKEN if hidden else tokens[u]]))
    out = []
    for layer in range(LAYERS):
        columns, value = [], ids[0] * int(MULTIPLIERS[layer, 0])
        for k in range(1, NGRAM):
            value ^= ids[k] * int(MULTIPLIERS[layer, k])
            columns += [value % int(PRIMES[layer, k - 1, head]) for head in range(HEADS)]
        out.append([c + int(o) for c, o in zip(columns, OFFSETS[layer], strict=True)])
    return out


def fresh_ring() -> Tensor:
    return torch.full((NUM_SLOTS + 1, RING), 93, dtype=torch.int32)  # a valid id that must never be read


@pytest.mark.parametrize("body", [0, 1], ids=["native", "reference"])
@settings(max_examples=25, deadline=None)
@given(data=st.data(), seed=st.integers(0, 9999))
def test_hash_schedules(body: int, data: st.DataObject, seed: int) -> None:
    hash_rows = bodies("engram_hash")[body]
    tokens, flags = token_rows(seed)

    def call(rows: Tensor, ring: Tensor) -> Tensor:
        return hash_rows(rows, *CONSTANTS, ring, PAD_TOKEN)

    assert_schedule_invariant(data.draw(schedules(LENGTHS)), LENGTHS, call, [], [fresh_ring()], tokens, flags)
    (ids,), (ring,) = run_schedule(one_by_one(LENGTHS), call, [], [fresh_ring()], tokens, flags)
    for (slot, t), row in ids.items():
        assert row.tolist() == plain_hash(tokens[slot].tolist(), flags[slot].bool().tolist(), t)
    for slot, n in enumerate(LENGTHS):
        for t in range(max(n - RING, 0), n):
            assert ring[slot, t % RING] == (-1 if flags[slot][t] else tokens[slot][t])


def test_real_multipliers_stay_below_the_sign_bit() -> None:
    assert int(MULTIPLIERS.max()) * 99091 < 2**63 and (MULTIPLIERS % 2 == 1).all()


def test_ids_outside_the_map_count_as_images() -> None:
    rows = step_rows((Chunk(0, 0, 3),), [torch.tensor([5, VOCAB, 6])])
    image = step_rows(
        (Chunk(0, 0, 3),), [torch.tensor([5, 7, 6])], [torch.tensor([0, int(RowFlag.IMAGE), 0])]
    )
    native, reference = bodies("engram_hash")
    want = native(image, *CONSTANTS, fresh_ring(), PAD_TOKEN)
    assert torch.equal(native(rows, *CONSTANTS, fresh_ring(), PAD_TOKEN), want)
    assert torch.equal(reference(rows, *CONSTANTS, fresh_ring(), PAD_TOKEN), want)


def table_rows() -> tuple[Tensor, Tensor]:
    """Every finite e4m3 code, with scales from the smallest to the largest exponent in use."""
    codes = torch.arange(256, dtype=torch.uint8)
    codes[127], codes[255] = 0, 128
    table = torch.stack([codes.roll(s)[:64] for s in range(0, 256, 16)])
    scale = (torch.arange(32, dtype=torch.uint8) * 4 + 60).view(16, 2)
    return table.view(torch.float8_e4m3fn), scale.view(torch.float8_e8m0fnu)


@DTYPES
def test_lookup_is_exact(dtype: torch.dtype) -> None:
    table, scale = table_rows()
    ids = torch.tensor(
        [[[0, 1, 2], [15, 3, 3]], [[4, 5, 6], [7, 14, 0]], [[0, 0, 0], [-1, 16, 9]]], dtype=torch.int32
    )
    native, reference = bodies("engram_lookup")
    for layer in (0, 1):
        out = native(ids, table, scale, layer, dtype)
        assert_same_bits(out, reference(ids, table, scale, layer, dtype), f"layer {layer}")
    assert (out[2, :128] == 0).all(), "ids outside the table give zeros"
    row = table[9].float() * scale[9].float().repeat_interleave(32)
    assert_same_bits(out[2, 128:], row.to(dtype), "row 9")


STREAMS, WIDTH, EPS = 4, 40, 1e-20


def gate_inputs(seed: int, dtype: torch.dtype, weight: torch.dtype) -> tuple[Tensor, ...]:
    step = (Chunk(0, 3, 2), Chunk(NUM_SLOTS, 0, 0), Chunk(1, 0, 3))
    rows = step_rows(step, flags=[torch.tensor([0] * 5), torch.tensor([0, int(RowFlag.IMAGE), 0])])
    streams = normal(seed, len(rows), STREAMS, WIDTH, dtype=dtype)
    streams[0, 1] = 0
    kv = normal(seed + 1, len(rows), (STREAMS + 1) * WIDTH, dtype=dtype)
    return (
        streams,
        kv,
        normal(seed + 2, STREAMS, WIDTH, dtype=weight),
        normal(seed + 3, STREAMS, WIDTH, dtype=weight),
        rows,
    )


@DTYPES
@pytest.mark.parametrize("weight", [torch.float32, torch.bfloat16], ids=["w32", "w16"])
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 9999))
def test_gate_equals_reference(dtype: torch.dtype, weight: torch.dtype, seed: int) -> None:
    streams, kv, qw, kw, rows = gate_inputs(seed, dtype, weight)
    native, reference = bodies("engram_gate")
    out = native(streams, kv, qw, kw, rows, EPS)
    assert_close(out, reference(streams, kv, qw, kw, rows, EPS))
    assert_same_bits(out[4], streams[4], "image row")
    half = kv[0, STREAMS * WIDTH :].float() / 2  # an all-zero stream has gate sigmoid(0)
    assert torch.equal(out[0, 1].float(), half.to(dtype).float())


@DTYPES
def test_gate_rows_leave_no_trace(dtype: torch.dtype) -> None:
    streams, kv, qw, kw, rows = gate_inputs(3, dtype, torch.bfloat16)
    native = bodies("engram_gate")[0]
    pads = [
        torch.full_like(streams[:1], float("nan")),
        torch.full_like(kv[:1], float("nan")),
        torch.tensor([PAD_ROW], dtype=torch.int32),
    ]
    assert_row_invariant(lambda s, k, r: native(s, k, qw, kw, r, EPS), (streams, kv, rows), pads=pads)


def test_nan_passes_through_the_gate() -> None:
    streams, kv, qw, kw, rows = gate_inputs(3, torch.float32, torch.float32)
    kv[0, 5] = float("nan")
    for call in bodies("engram_gate"):
        out = call(streams, kv, qw, kw, rows, EPS)
        assert out[0, 0].isnan().all() and not out[0, 1:].isnan().any() and not out[1].isnan().any()


def test_fakes() -> None:
    rows = step_rows((Chunk(0, 0, 3),))
    table, scale = table_rows()
    ids = torch.zeros((3, LAYERS, 6), dtype=torch.int32)
    cases = {
        "engram_hash": (rows, *CONSTANTS, fresh_ring(), PAD_TOKEN),
        "engram_lookup": (ids, table, scale, 1, torch.bfloat16),
        "engram_gate": (*gate_inputs(1, torch.float32, torch.float32), EPS),
    }
    for name, arguments in cases.items():
        assert_fake_matches(OPS[name].fake, OPS[name].reference, *arguments)
