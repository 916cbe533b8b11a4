"""A call of the attention ops over packed state: window edges, rows of this step, masked selections, pads."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dsv41c.compiler.kernels import catalog
from dsv41c.compiler.kernels.attention_catalog import AttentionShape, attention_shape
from dsv41c.compiler.ops.catalog import OPS
from dsv41c.compiler.ops.packed import FP4_KV, FP8
from dsv41c.tools.bench.op_case import NUM_SLOTS, nan_pads, normal, page_table, row_table

BF16 = torch.bfloat16
WIDTH, ROPE, WINDOW, RING, PAGE_ROWS = 512, 64, 128, 134, 64
PAD = (NUM_SLOTS, 0, 0)
# Windows of one key, of one less than all, of all and of one more, over both sources; a chunk as long as the ring.
GROUPS = ((1, 3 * WINDOW + 1, 3), PAD, (0, 0, 2), (2, WINDOW - 2, 4))


@dataclass(frozen=True)
class AttentionCase:
    """`tensors`: those of the launch in the order of the op, without the output. `arguments`: the op's."""

    op: str
    tensors: tuple[Tensor, ...]
    groups: int
    cast: bool

    @property
    def rows(self) -> int:
        return int(self.tensors[0].shape[0])

    @property
    def scale(self) -> float:
        return float(WIDTH**-0.5)

    def arguments(self) -> list[object]:
        """Tensors cloned: the window is written."""
        tail = (WINDOW, 2, self.scale) if self.op == "mega_sparse_attention" else (WINDOW, self.scale)
        return [*(t.clone() for t in self.tensors), *tail, self.groups, self.cast]

    def reference(self) -> tuple[Tensor, Tensor]:
        """The result and the window behind it."""
        arguments = self.arguments()
        result = OPS[self.op].reference(*arguments)
        window = arguments[2]
        assert isinstance(window, Tensor)
        return result.view(self.rows, -1), window

    def shape(self) -> AttentionShape:
        found = attention_shape([_Shape(t) for t in self.tensors], WINDOW, self.scale, self.cast)
        assert found is not None
        return found

    def kernels(self, target: str, is_invariant: bool) -> catalog.OpKernels:
        return catalog.mega_attention(self.op, self.shape(), target, is_invariant)

    def live(self) -> Tensor:
        return (self.tensors[-2][:, 7] & 4) == 0


class _Shape:
    def __init__(self, tensor: Tensor) -> None:
        self.dtype, self.sizes = tensor.dtype, tuple(tensor.shape)


def attention_case(heads: int, selected: int, cast: bool, groups: tuple[tuple[int, int, int], ...] = GROUPS,
                   pages: int = 8) -> AttentionCase:
    """`selected` 0: attention over the window alone. Selections end in -1, begin with it, hold nothing else, or have
    holes; row 1 has a floor behind its position and so no window."""
    rows = row_table(*groups)
    count = len(rows)
    q = nan_pads(normal(1, count, heads, WIDTH, dtype=BF16), rows)
    key = nan_pads(OPS["quantize_fp8"].reference(normal(2, count, WIDTH, dtype=BF16)), rows)
    window = FP8.pack(normal(3, NUM_SLOTS + 1, RING, WIDTH) * 2.0 ** (2 * normal(4, NUM_SLOTS + 1, RING, 1)))
    angle = torch.rand(1024, ROPE // 2, generator=torch.Generator().manual_seed(5)) * 6.28
    table, sink = torch.stack((angle.cos(), angle.sin()), -1), normal(6, heads)
    if count > 1:
        rows[1, 6] = rows[1, 1] + 1
    if not selected:
        return AttentionCase("mega_window_attention", (q, key, window, sink, rows, table), 1, cast)
    pool = FP4_KV.pack(normal(7, NUM_SLOTS * pages + 1, PAGE_ROWS, WIDTH) * 0.3)
    chosen = torch.full((count, selected), -1, dtype=torch.int32)
    for i in range(count):
        picked = torch.randperm(pages * PAGE_ROWS, generator=torch.Generator().manual_seed(i))[: selected - i]
        part = slice(selected - len(picked), None) if i % 3 == 2 else slice(len(picked))
        chosen[i, part] = picked.sort().values.int()
        chosen[i, :: 5 if i % 2 else selected] = -1
    chosen[1 % count] = -1
    tensors = (q, key, window, pool, page_table(8, pages), chosen, sink, rows, table)
    return AttentionCase("mega_sparse_attention", tensors, 1, cast)
