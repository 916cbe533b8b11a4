"""Cases of the row ops: tables, taking, embedding, norm, rotary, quantizers, greedy token."""

from __future__ import annotations

import torch
from torch import Tensor

from dsv41c.compiler.ops.rows import RowColumn, RowFlag
from dsv41c.tools.bench.op_case import NUM_SLOTS, PAD_FLAGS, Case, integers, normal, page_table, row_table

F32, BF16 = torch.float32, torch.bfloat16
GROUPS = ((1, 5, 3), (NUM_SLOTS, 0, 0), (0, 0, 4), (2, 11, 1), (NUM_SLOTS, 0, 0))
INF, NAN = float("inf"), float("nan")


def small() -> list[Case]:
    return [*_tables(), *_takes(), _greedy(6, 1000), *_embed(), *_norm(64), *_rotary(2, 32, 16), *_quantizers()]


def real() -> list[Case]:
    return [_greedy(3, 129280), *_norm(5120), *_norm(1280), *_rotary(64, 512, 64), _long_table(5000)]


def _tables() -> list[Case]:
    upload = torch.tensor([
        [1, 0, 17, 0, 4], [1, 1, 18, 0, -1], [1, 2, 19, 2, 5], [NUM_SLOTS, 0, 0, PAD_FLAGS, -1], [0, 0, -1, 1, 2],
        [0, 1, 5, 0, -1],
        [2, 0, -1, RowFlag.REPLAY | RowFlag.HIT, -1], [2, 1, 6, RowFlag.REPLAY, -1], [NUM_SLOTS, 0, 0, PAD_FLAGS, -1],
        [NUM_SLOTS, 0, 0, PAD_FLAGS, -1],
    ], dtype=torch.int32)
    state = (torch.tensor([3, 4, 5, 6]).int(), torch.tensor([9, 14, 30, 0]).int(), page_table(1, 6, 2),
             torch.tensor([1, 7, 2, 0]).int())
    rows = row_table(*GROUPS, (1, 30, 2))
    index = torch.tensor([0, 2, -1, 4, 5, 7, -1, 99, 9], dtype=torch.int32)
    return [Case("row_table", "mixed", (upload, *state, 8), ("upload",), True, judge_pads=True), _long_table(2100),
            Case("take_row_table", "mixed", (rows, index, NUM_SLOTS, "suffix"), ("index",), True, judge_pads=True),
            Case("take_row_table", "all", (rows, torch.arange(len(rows)).int(), NUM_SLOTS, "suffix"), ("index",), True),
            *_floors(rows)]


def _floors(rows: torch.Tensor) -> list[Case]:
    """Floors that the state holds, that flagged rows move, and of a slot that begins."""
    flagged, held = rows.clone(), torch.tensor([3, 5, 7, 0], dtype=torch.int32)
    flagged[::3, RowColumn.FLAGS] |= RowFlag.FLOOR
    long = row_table((0, 0, 1000), (1, 5, 3), (2, 40, 1097))  # more rows than the block has threads
    long[777::500, RowColumn.FLAGS] |= RowFlag.FLOOR
    return [Case("window_floor", name, (table, held), ("rows",), True, judge_pads=True)
            for name, table in (("held", rows), ("moved", flagged), ("2100 rows", long))]


def _long_table(count: int) -> Case:
    """More rows than the block has threads: groups span the rows of several threads."""
    slots = [0] * (count // 2) + [1] * 3 + [2] * (count - count // 2 - 3)
    upload, offset = torch.zeros(count, 5, dtype=torch.int32), 0
    for i, slot in enumerate(slots):
        offset = offset + 1 if i and slots[i - 1] == slot else 0
        upload[i] = torch.tensor([slot, offset, i, 0, -1])
        if offset == 0 and slot:
            upload[i, 3] = RowFlag.HIT if slot == 1 else 0
    state = (torch.zeros(4).int(), torch.tensor([9, 14, 30, 0]).int(), page_table(1, 6),
             torch.tensor([3, 5, 7, 0]).int())
    return Case("row_table", f"{count} rows", (upload, *state, 8), ("upload",), True)


def _takes() -> list[Case]:
    index = torch.tensor([3, -1, 0, 8, 8], dtype=torch.int32)
    shapes = ((F32, (9, 4)), (BF16, (9, 4, 64)), (BF16, (9, 3)))
    return [Case("take_rows", f"{dtype} {shape}", (normal(1, *shape, dtype=dtype), index, "suffix"), ("index",), True)
            for dtype, shape in shapes]


def _greedy(count: int, width: int) -> Case:
    logits = normal(3, count, width).mul(4).round()  # ties are common
    logits[0, 5:9] = NAN
    if count > 3:
        logits[1] = NAN
        logits[2] = -INF
        logits[2, :3] = NAN
    rows = row_table(*((i % 3, 4, 1) for i in range(count - 3)), (1, 9, 2), (NUM_SLOTS, 0, 0))
    return Case("greedy_token", f"{width} wide", (logits, rows, torch.arange(4).int()), ("logits", "rows"), True)


def _embed() -> list[Case]:
    rows = row_table(*GROUPS, tokens=(0, 3, 95, 96, -1, 40))
    return [Case("embed_expand", f"{dtype}", (rows, normal(5, 96, 24, dtype=BF16), 4, dtype), ("rows",), True)
            for dtype in (F32, BF16)]


def _norm(width: int) -> list[Case]:
    weight = normal(7, width).mul(0.1).add(1).to(BF16)
    return [Case("rms_norm", f"{dtype} {width}", (normal(6, *shape, width, dtype=dtype), weight, 1e-20), ("x",))
            for dtype, shape in ((F32, (5,)), (BF16, (5,)), (BF16, (3, 2)))] + [
            Case("rms_norm", f"zero rows {width}", (torch.zeros(2, width), weight, 1e-20), ("x",), True)]


def _rotary(heads: int, width: int, turned: int) -> list[Case]:
    rows, positions = row_table(*GROUPS), 16
    angle = normal(8, positions, turned // 2)
    table = torch.stack((angle.cos(), angle.sin()), -1)
    return [Case("rotary", f"{dtype} {shape} ratio {ratio} inverse {inverse}",
                 (normal(9, len(rows), *shape, dtype=dtype), rows, table, ratio, inverse), ("x", "rows"), True)
            for dtype, shape, ratio, inverse in ((F32, (width,), 2, False), (BF16, (heads, width), 1, False),
                                                 (F32, (heads, width), 1, True), (BF16, (heads, width), 1, True))]


def _quantizers() -> list[Case]:
    return [Case(op, f"{dtype}", (_hard_values(dtype),), ("x",), True)
            for op in ("quantize_fp8", "quantize_fp4_index", "quantize_fp4_kv") for dtype in (F32, BF16)]


def _hard_values(dtype: torch.dtype) -> Tensor:
    """All magnitudes, halves between grid points, zeros, subnormals, and one very large group."""
    rows = normal(11, 24, 96) * torch.logspace(-30, 30, 24, base=2).unsqueeze(1)
    grid = torch.arange(0, 480).float().div(16)[:96]
    ties = torch.stack((grid, -grid, grid * 2.0**-9, grid.add(0.25)))
    tiny = torch.stack((torch.zeros(96), normal(12, 96) * 1e-39, normal(13, 96) * 1e-6, normal(14, 96) * 1e30))
    steps = integers(15, -448, 449, 8, 96).float()
    return torch.cat((rows, ties, tiny, steps, steps / 64)).to(dtype)
