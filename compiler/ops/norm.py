"""Fused norms: a row is normalized once, and what reads it in a rounded form finds that too."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from dsv41c.compiler.ops.fused import fused_op
from dsv41c.compiler.ops.spec import OpSpec, PadRule


def _rms_norm_cast(ops: Any, x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    normed = ops.rms_norm(x, weight, eps)
    return normed, ops.quantize_fp8(normed)


SPECS: tuple[OpSpec, ...] = (
    fused_op(
        name="rms_norm_cast",
        schema="(Tensor x, Tensor weight, float eps) -> (Tensor, Tensor)",
        pads=PadRule.ROW, tie_order=None, composition=_rms_norm_cast,
    ),
)
