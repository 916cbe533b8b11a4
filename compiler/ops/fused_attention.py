"""Fused ops of the attention sublayer."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from dsv41c.compiler.ops.fused import fused_op
from dsv41c.compiler.ops.spec import OpSpec, PadRule


def _mega_sparse_attention(ops: Any, q: Tensor, window_kv: Tensor, window: Tensor, compressed: Tensor,
                           page_table: Tensor, selected: Tensor, sink: Tensor, rows: Tensor, table: Tensor,
                           window_size: int, ratio: int, scale: float, groups: int, cast: bool) -> Any:
    """Rotary of the query, attention over window and selected entries, the ring's commit, inverse rotary, cast."""
    turned = ops.rotary(q, rows, table, 1, False)
    o = ops.sparse_attention(turned, window_kv, window, compressed, page_table, selected, sink, rows, window_size,
                             ratio, scale)
    ops.window_commit(window_kv, rows, window)
    o = ops.rotary(o, rows, table, 1, True)
    o = o.view(-1, groups, q.shape[1] * q.shape[2] // groups)
    return ops.quantize_fp8(o) if cast else o


SPECS: tuple[OpSpec, ...] = (
    fused_op(
        name="mega_sparse_attention",
        schema="(Tensor q, Tensor window_kv, Tensor(a!) window, Tensor compressed, Tensor page_table, Tensor selected, "
               "Tensor sink, Tensor rows, Tensor table, int window_size, int ratio, float scale, int groups, "
               "bool cast) -> Tensor",
        pads=PadRule.SKIP, composition=_mega_sparse_attention,
    ),
)
