"""Fused ops of the attention sublayer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from dsv41c.compiler.ops.constraints import groups_reason, same_dtype
from dsv41c.compiler.ops.fused import fused_op
from dsv41c.compiler.ops.spec import Constraint, OpSpec, PadRule


def _around(ops: Any, attend: Callable[[Tensor], Tensor], q: Tensor, rows: Tensor, table: Tensor, groups: int,
            cast: bool) -> Tensor:
    """Rotary of the query, attention, inverse rotary, cast of the output groups."""
    o = ops.rotary(attend(ops.rotary(q, rows, table, 1, False)), rows, table, 1, True)
    o = o.view(-1, groups, q.shape[1] * q.shape[2] // groups)
    return ops.quantize_fp8(o) if cast else o  # type: ignore[no-any-return]


def _mega_sparse_attention(ops: Any, q: Tensor, window_kv: Tensor, window: Tensor, compressed: Tensor,
                           page_table: Tensor, selected: Tensor, sink: Tensor, rows: Tensor, table: Tensor,
                           window_size: int, ratio: int, scale: float, groups: int, cast: bool) -> Any:
    """Attention over window and selected entries; the ring is read before this step's keys are committed to it."""
    def attend(turned: Tensor) -> Any:
        o = ops.sparse_attention(turned, window_kv, window, compressed, page_table, selected, sink, rows, window_size,
                                 ratio, scale)
        ops.window_commit(window_kv, rows, window)
        return o
    return _around(ops, attend, q, rows, table, groups, cast)


def _mega_window_attention(ops: Any, q: Tensor, window_kv: Tensor, window: Tensor, sink: Tensor, rows: Tensor,
                           table: Tensor, window_size: int, scale: float, groups: int, cast: bool) -> Any:
    """Attention over the window alone; the ring is read before this step's keys are committed to it."""
    def attend(turned: Tensor) -> Any:
        o = ops.window_attention(turned, window_kv, window, sink, rows, window_size, scale)
        ops.window_commit(window_kv, rows, window)
        return o
    return _around(ops, attend, q, rows, table, groups, cast)


def _mega_draft_attention(ops: Any, q: Tensor, window_kv: Tensor, window: Tensor, sink: Tensor, rows: Tensor,
                          table: Tensor, window_size: int, scale: float, groups: int, cast: bool) -> Any:
    """Attention of a draft block; draft keys are never committed."""
    def attend(turned: Tensor) -> Any:
        return ops.draft_attention(turned, window_kv, window, sink, rows, window_size, scale)
    return _around(ops, attend, q, rows, table, groups, cast)


def _whole_output_groups(*args: Any) -> str | None:
    """The last two arguments are the number of groups and the flag; the first is the query."""
    q, groups, cast = args[0], args[-2], args[-1]
    return groups_reason(q.shape[1] * q.shape[2] // groups) if cast else None


_CONSTRAINTS = (same_dtype(0, 1, "q and window_kv"), same_dtype(0, 2, "q and window", or_packed=True),
                Constraint("a cast takes whole groups of 32", _whole_output_groups))
_WINDOW = ("Tensor sink, Tensor rows, Tensor table, int window_size, float scale, int groups, bool cast) -> Tensor")

SPECS: tuple[OpSpec, ...] = (
    fused_op(
        name="mega_sparse_attention",
        schema="(Tensor q, Tensor window_kv, Tensor(a!) window, Tensor compressed, Tensor page_table, Tensor selected, "
               "Tensor sink, Tensor rows, Tensor table, int window_size, int ratio, float scale, int groups, "
               "bool cast) -> Tensor",
        pads=PadRule.SKIP, composition=_mega_sparse_attention, constraints=_CONSTRAINTS,
    ),
    fused_op(
        name="mega_window_attention", schema="(Tensor q, Tensor window_kv, Tensor(a!) window, " + _WINDOW,
        pads=PadRule.SKIP, composition=_mega_window_attention, constraints=_CONSTRAINTS,
    ),
    fused_op(
        name="mega_draft_attention", schema="(Tensor q, Tensor window_kv, Tensor window, " + _WINDOW,
        pads=PadRule.ROW, composition=_mega_draft_attention, constraints=_CONSTRAINTS,
    ),
)
