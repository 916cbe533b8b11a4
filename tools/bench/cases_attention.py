"""Cases of attention, of the stores and of the index selection."""

from __future__ import annotations

import torch
from torch import Tensor

from dsv41c.compiler.ops.catalog import OPS
from dsv41c.compiler.ops.packed import FP4_INDEX, FP4_KV, FP8, Format
from dsv41c.compiler.ops.rows import RowColumn, RowFlag
from dsv41c.tools.bench.op_case import NUM_SLOTS, Case, integers, nan_pads, normal, page_table, row_table

F32, BF16 = torch.float32, torch.bfloat16
PAD = (NUM_SLOTS, 0, 0)


def small() -> list[Case]:
    cases = [*_stores(F32), *_stores(BF16), *_pairs(24), *packed_cases()]
    for dtype in (F32, BF16):
        cases += [*_attention(dtype, 4, 32, 8, 11, 4), *_attention(dtype, 3, 40, 8, 9, 20),
                  *_index(dtype, 2, 32, 4, 4, 4, 2, 8), *_index(dtype, 9, 40, 300, 64, 4, 40, 12)]
    return cases


def packed_cases() -> list[Case]:
    """The same ops on packed state: numbers on the grids of the quantizers, which packing keeps."""
    cases = [*_stores(F32, 64, True), *_stores(BF16, 64, True)]
    for dtype in (F32, BF16):
        cases += [*_attention(dtype, 4, 64, 8, 11, 4, True), *_index(dtype, 2, 32, 4, 4, 4, 2, 8, True)]
    return cases


def real() -> list[Case]:
    return [*_attention(BF16, 64, 512, 128, 134, 512), *_attention(F32, 64, 512, 128, 134, 512), *_pairs(512),
            *_index(BF16, 32, 128, 512, 128, 8, 2048, 160), *_attention(BF16, 64, 512, 128, 134, 512, True),
            *_stores(BF16, 512, True), *_index(BF16, 32, 128, 512, 128, 8, 2048, 160, True)]


def _held(x: Tensor, form: Format | None) -> Tensor:
    """State that holds x, packed where a format is named."""
    return x if form is None else form.pack(x)


def _attention(dtype: torch.dtype, heads: int, width: int, window: int, ring: int, selected: int,
               is_packed: bool = False) -> list[Case]:
    rows = row_table((1, 2 * window + 3, 3), PAD, (0, 0, 4), (2, window - 2, 5))
    count, per_page, pages, scale = len(rows), 4, max(4, selected // 2), width**-0.5
    q = nan_pads(normal(1, count, heads, width, dtype=dtype), rows)
    keys = nan_pads(normal(2, count, width, dtype=dtype), rows)
    held = normal(3, NUM_SLOTS + 1, ring, width, dtype=dtype)
    pool = normal(4, NUM_SLOTS * pages + 1, per_page, width, dtype=dtype)
    held, pool = _held(held, FP8 if is_packed else None), _held(pool, FP4_KV if is_packed else None)
    sink, name = normal(5, heads), f"{heads}x{width} window {window} {dtype}{' packed' if is_packed else ''}"
    chosen = torch.full((count, selected), -1, dtype=torch.int32)
    for i in range(count):
        picked = torch.randperm(per_page * pages, generator=torch.Generator().manual_seed(i))[: selected - i % 3]
        chosen[i, : len(picked)] = picked.sort().values.int()
    dense = (q, keys, held, sink, rows, window, scale)
    sparse = (q, keys, held, pool, page_table(6, pages), chosen, sink, rows, window, 2, scale)
    carried = ("q", "window_kv", "rows")
    return [Case("window_attention", name, dense, carried), Case("draft_attention", name, dense, carried),
            Case("sparse_attention", f"{name} selected {selected}", sparse, (*carried, "selected"))]


def _stores(dtype: torch.dtype, width: int = 20, is_packed: bool = False) -> list[Case]:
    """Packed ones take numbers of every magnitude, on the grid of their quantizer and off it, and a NaN."""
    rows = row_table((1, 5, 9), PAD, (0, 0, 3), (2, 14, 1), (NUM_SLOTS, 0, 0))
    value = normal(1, len(rows), width, dtype=dtype)
    if is_packed:
        value = (value * 2.0 ** (2 * normal(7, len(rows), 1) - 3)).to(dtype)
        value[-2, 3] = float("nan")
    value = nan_pads(value, rows)
    window = _held(normal(2, NUM_SLOTS + 1, 6, width, dtype=dtype), FP8 if is_packed else None)
    name = f"{dtype}{' packed' if is_packed else ''}"
    cases = [Case("window_commit", name, (value, rows, window), ("window_kv", "rows"), True)]
    if is_packed:
        value[:5] = OPS["quantize_fp4_kv"].reference(value[:5])
    for ratio, form in ((1, FP4_KV), (2, FP4_KV), (1, FP4_INDEX)):
        if form is FP4_INDEX and not is_packed:
            continue
        pool = _held(normal(3, NUM_SLOTS * 5 + 1, 4 // ratio, width, dtype=dtype), form if is_packed else None)
        title = f"{name} {form.name} ratio {ratio}" if is_packed else f"{name} ratio {ratio}"
        cases += [Case("entry_store", f"{title}{mark}", (value, table, page_table(4, 5, 1), pool, ratio),
                       ("entry", "rows"), True) for mark, table in (("", rows), (" replayed", _replayed(rows)))]
    return cases


def _replayed(rows: Tensor) -> Tensor:
    """The first rows of the first slot lie behind a prefix hit."""
    table = rows.clone()
    table[:5, RowColumn.FLAGS] |= RowFlag.REPLAY
    return table


def _pairs(width: int) -> list[Case]:
    rows = row_table((1, 5, 6), PAD, (0, 0, 3), (2, 15, 1), (NUM_SLOTS, 0, 0))
    kv, gate = (nan_pads(normal(seed, len(rows), width), rows) for seed in (1, 2))
    return [Case("compress_pairs", f"{dtype} {width} ring {ring}{name}",
                 (kv, gate, table, normal(3, NUM_SLOTS + 1, ring, 2, width), dtype), ("kv", "gate", "rows"))
            for dtype, ring in ((F32, 1), (BF16, 3)) for name, table in (("", rows), (" replayed", _replayed(rows)))]


def _whole(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Whole numbers: every score is exact, and ties are common."""
    return x.round().to(dtype)


def _index(dtype: torch.dtype, heads: int, width: int, topk: int, per_page: int, block: int, topk_blocks: int,
           pages: int, is_packed: bool = False) -> list[Case]:
    capacity = pages * per_page
    rows = row_table((1, capacity - 1, 1), PAD, (2, 0, 2), (0, capacity // 2, 1), (NUM_SLOTS, 0, 0))
    count = len(rows)
    q = _whole(normal(1, count, heads, width).mul(0.6), dtype)
    weights = _whole(normal(2, count, heads), F32)
    keys = _whole(normal(3, NUM_SLOTS * pages + 1, per_page, width).mul(0.4), dtype)
    if is_packed:  # whole numbers up to 2 are on the grid
        keys = FP4_INDEX.pack(keys.clamp(-2, 2))
    inputs = (nan_pads(q, rows), nan_pads(weights, rows), keys, page_table(4, pages), rows)
    name = f"{heads}x{width} top {topk} of {capacity} {dtype}{' packed' if is_packed else ''}"
    carried = ("q", "weights", "rows")
    cases = [Case("index_topk", f"{name} ratio {ratio}", (*inputs, topk, ratio, 0.125), carried, True)
             for ratio in (1, 2)]
    cases.append(Case("index_topk_blocks", name, (*inputs, topk, 1, 0.125, block, topk_blocks), carried, True))
    chosen = torch.full((count, topk_blocks), -1, dtype=torch.int32)
    for i in range(count):
        seen = -(-(int(rows[i, 1]) + 1) // block)
        listed = torch.tensor(sorted(set(integers(i, 0, seen, topk_blocks).tolist())))
        listed = torch.cat((listed[listed != seen - 1], torch.tensor([seen - 1])))[-topk_blocks:]
        chosen[i, : len(listed)] = listed
    cases.append(Case("index_topk_within", name, (*inputs, chosen, topk, 1, 0.125, block), (*carried, "blocks"), True))
    return cases
