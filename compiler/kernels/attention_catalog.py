"""Kernels of attention over packed state, for the fused attention ops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dsv41c.compiler.kernels.configurations import ATTENTION_SPLITS, Splits
from dsv41c.compiler.kernels.source import Float, Int32, KernelSource, Param, Scratch, Tensor
from dsv41c.compiler.ops import packed
from dsv41c.runtime.plan.expr import Binary, Expr

ROWS = "rows"
WIDTH, ROPE, HEADS, TILE = 512, 64, 64, 64  # what the kernel is written for; fewer heads are padded
SUM_BYTES, PART_BYTES = HEADS * WIDTH * 4, HEADS * 2 * 4  # of one part of one row
FIXED_SHARED_BYTES = 1024 + (8 + 2 * 8 + 2) * TILE * 128 + (2 + 2 + 1) * TILE * 4  # mega_attention.cu, struct Shared


@dataclass(frozen=True)
class AttentionShape:
    """`pool`: pages, rows of a page and pages of a slot; None without selected entries."""

    heads: int
    window: int
    ring: int
    positions: int
    selected: int
    pool: tuple[int, int, int] | None
    scale: float
    cast: bool

    def constants(self) -> dict[str, int]:
        pages, page_rows, slot_pages = self.pool or (1, 1, 1)
        return {"HEADS": self.heads, "ROPE": ROPE, "MAX_POSITIONS": self.positions, "WINDOW": self.window,
                "RING": self.ring, "SELECTED": self.selected, "POOL_PAGES": pages, "PAGE_ROWS": page_rows,
                "PAGES_PER_SLOT": slot_pages, "CAST": int(self.cast)}


def attention_shape(tensors: Sequence[Any], window_size: int, scale: float, cast: bool) -> AttentionShape | None:
    """Of the op's tensors: query, keys, window, the compressed pool with its page table and selection where there are
    entries, sink, rows, angles. None for shapes that the kernel is not written for."""
    q, _, window, *entries, _, _, table = tensors
    heads, width = q.sizes[1:]
    ring, ring_bytes = window.sizes[1:]
    fits = (str(q.dtype) == "torch.bfloat16" and width == WIDTH and heads <= HEADS and 2 * table.sizes[1] == ROPE
            and window.dtype == packed.DTYPE and ring_bytes == packed.FP8.row_bytes(WIDTH) and window_size % TILE == 0)
    if not fits:
        return None
    if not entries:
        return AttentionShape(heads, window_size, ring, table.sizes[0], 0, None, scale, cast)
    compressed, page_table, selected = entries
    if compressed.dtype != packed.DTYPE or compressed.sizes[2] != packed.FP4_KV.row_bytes(WIDTH):
        return None
    pool = (compressed.sizes[0], compressed.sizes[1], page_table.sizes[1])
    return AttentionShape(heads, window_size, ring, table.sizes[0], selected.sizes[1], pool, scale, cast)


def attention_launches(shape: AttentionShape, target: str, is_invariant: bool) -> tuple[tuple[KernelSource, ...], Expr]:
    """Attention, then the sum of its parts with the commit of the step's keys; and the scratch bytes of both."""
    splits = ATTENTION_SPLITS[target, "window and entries" if shape.pool else "window"]
    parts: Expr = splits.fixed if is_invariant else _parts(splits)
    units = 0 if parts == 1 else _units(splits, is_invariant)
    names = ("window", "compressed", "page_table", "selected", "sink", "rows", "table", "out")
    # Without entries their places are taken by tensors that are not read.
    index = dict(zip(names, range(2, 10), strict=True)) if shape.pool else {
        "window": 2, "compressed": 2, "page_table": 4, "selected": 4, "sink": 3, "rows": 4, "table": 5, "out": 6}
    tensor = {name: Tensor(number) for name, number in index.items()}
    sums: dict[str, Param] = {"partial": Scratch(0), "parts": Scratch(_times(units, SUM_BYTES)), "splits": Int32(parts)}
    if units == 0:  # neither written nor read
        sums |= {"partial": tensor["out"], "parts": tensor["out"]}
    attend = KernelSource(
        file="cuda/mega_attention.cu", constants=tuple(sorted(shape.constants().items())),
        bindings=(("q", Tensor(0)), ("window_kv", Tensor(1)), *tensor.items(), *sums.items(),
                  ("scale", Float(shape.scale))),
        grid=(ROWS, parts, 1), block=(512, 1, 1),
        shared_bytes=FIXED_SHARED_BYTES + 4 * (shape.window + -(-shape.selected // TILE) * TILE))
    finish = KernelSource(
        file="cuda/mega_attention_finish.cu",
        constants=(("CAST", int(shape.cast)), ("HEADS", shape.heads), ("MAX_POSITIONS", shape.positions),
                   ("MOST_SPLITS", splits.most), ("RING", shape.ring), ("ROPE", ROPE)),
        bindings=(("window_kv", Tensor(1)), *((n, tensor[n]) for n in ("window", "sink", "rows", "table", "out")),
                  *sums.items()),
        grid=(ROWS, _finish_blocks(parts, shape.heads), 1), block=(128, 1, 1))
    return (attend, finish), _times(units, SUM_BYTES + PART_BYTES)


def _parts(splits: Splits) -> Expr:
    """Parts of a row as an expression of the rows."""
    found: Expr = 1
    rungs = (*(parts for _, parts in splits.ladder), 1)
    for (most, parts), after in zip(splits.ladder, rungs[1:], strict=True):
        at_most = Binary("max", 0, Binary("-", 1, Binary("floordiv", ROWS, most + 1)))
        found = Binary("+", found, _times(at_most, parts - after))
    return found


def _units(splits: Splits, is_invariant: bool) -> Expr:
    """Rows times parts at most, and never less for more rows: an arena is laid out at the bound of the rows."""
    if is_invariant:
        return _times(ROWS, splits.fixed)
    return Binary("min", _times(ROWS, splits.most), max(most * parts for most, parts in splits.ladder))


def _finish_blocks(parts: Expr, heads: int) -> Expr:
    """Of each row: one that commits its key and, where it has several parts, one a head."""
    if isinstance(parts, int):
        return 1 + heads * min(1, parts - 1)
    return Binary("+", 1, _times(Binary("min", 1, Binary("+", parts, -1)), heads))


def _times(a: Expr, b: int) -> Expr:
    return a * b if isinstance(a, int) else Binary("*", a, b)
