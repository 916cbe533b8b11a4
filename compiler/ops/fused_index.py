"""Fused op of the indexer: what a row brings to the scores."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dsv41c.compiler.ops.fused import fused_op
from dsv41c.compiler.ops.spec import OpSpec, PadRule


def _index_query(ops: Any, query: Tensor, x: Tensor, proj: Tensor, rows: Tensor, table: Tensor, cast: bool) -> Any:
    """I6 to I8: the rotated, cast query beside the weights of its heads."""
    turned = ops.rotary(query, rows, table, 1, False)
    return ops.quantize_fp4_index(turned) if cast else turned, ops.linear(x, proj, None, torch.float32)


SPECS: tuple[OpSpec, ...] = (
    fused_op(
        name="index_query",
        schema="(Tensor query, Tensor x, Tensor proj, Tensor rows, Tensor table, bool cast) -> (Tensor, Tensor)",
        pads=PadRule.ROW, composition=_index_query, tie_order=None,
    ),
)
