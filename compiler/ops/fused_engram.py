"""Fused op of the Engram: table rows, gathered and cast."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dsv41c.compiler.ops.fused import fused_op
from dsv41c.compiler.ops.spec import OpSpec, PadRule


def _engram_gather(ops: Any, ids: Tensor, table: Tensor, scale: Tensor, layer: int, dtype: torch.dtype) -> Any:
    """G3 and G4. Table rows carry power-of-two scales, so a kernel may hand their bytes on."""
    return ops.quantize_fp8(ops.engram_lookup(ids, table, scale, layer, dtype))


SPECS: tuple[OpSpec, ...] = (
    fused_op(
        name="engram_gather",
        schema="(Tensor ids, Tensor table, Tensor scale, int layer, ScalarType dtype) -> Tensor",
        pads=PadRule.ROW, composition=_engram_gather, tie_order=None,
    ),
)
