"""Cases of the Engram ops."""

from __future__ import annotations

import torch
from torch import Tensor

from dsv41c.tools.bench.op_case import NUM_SLOTS, Case, e4m3, e8m0, integers, nan_pads, normal, row_table

F32, BF16 = torch.float32, torch.bfloat16
IMAGE = 2
PAD = (NUM_SLOTS, 0, 0)


def small() -> list[Case]:
    return [*_hash(2, 3, 2, 50, 40, 2), *_hash(1, 4, 3, 120, 99092, 5), *_lookup(6, 32), *_gate(4, 64), *_gate(2, 33)]


def real() -> list[Case]:
    return [*_hash(2, 4, 8, 129280, 99092, 3), *_lookup(24, 256), *_gate(4, 5120)]


def _rows(vocabulary: int) -> Tensor:
    tokens = [3, 17, vocabulary + 5, 8, 0, vocabulary - 1, 21]
    return row_table((1, 5, 7), PAD, (0, 0, 3), (2, 14, 1), (NUM_SLOTS, 0, 0), flags=(0, 0, 0, IMAGE, 0), tokens=tokens)


def _hash(layers: int, n: int, heads: int, vocabulary: int, compressed: int, ring: int) -> list[Case]:
    columns = (n - 1) * heads
    multipliers = integers(1, 1, (2**63 - 1) // compressed // 2, layers, n, dtype=torch.int64) * 2 + 1
    moduli = integers(2, 1000, 16_000_000, layers, n - 1, heads, dtype=torch.int64)
    offsets = integers(3, 0, 300_000_000, layers, columns, dtype=torch.int64)
    held = integers(4, -1, vocabulary, NUM_SLOTS + 1, ring)
    args = (_rows(vocabulary), integers(5, 0, compressed, vocabulary), multipliers, moduli, offsets, held, 2)
    return [Case("engram_hash", f"{layers} layers, {n} tokens, ring {ring}", args, ("rows",), True)]


def _lookup(picks: int, width: int) -> list[Case]:
    ids = integers(1, -2, 52, 4, 2, picks)
    table, scale = e4m3(2, 50, width), e8m0(3, 110, 130, 50, width // 32)
    return [Case("engram_lookup", f"{picks}x{width} {dtype}", (ids, table, scale, 1, dtype), ("ids",), True)
            for dtype in (F32, BF16)]


def _gate(streams: int, width: int) -> list[Case]:
    rows = _rows(50)
    cases = []
    for dtype in (F32, BF16):
        trunk = nan_pads(normal(1, len(rows), streams, width, dtype=dtype), rows)
        kv = nan_pads(normal(2, len(rows), (streams + 1) * width, dtype=dtype), rows)
        args = (trunk, kv, normal(3, streams, width, dtype=BF16), normal(4, streams, width, dtype=BF16), rows, 1e-20)
        cases.append(Case("engram_gate", f"{streams}x{width} {dtype}", args, ("streams", "kv", "rows")))
    return cases
