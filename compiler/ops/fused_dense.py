"""Fused ops of norms, casts and products."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dsv41c.compiler.ops.constraints import groups_reason, same_dtype, whole_groups
from dsv41c.compiler.ops.fused import fused_op
from dsv41c.compiler.ops.spec import Constraint, OpSpec, PadRule


def _linear_pair(ops: Any, x: Tensor, w1: Tensor, scale1: Tensor, w2: Tensor, scale2: Tensor,
                 dtype: torch.dtype) -> list[Tensor]:
    """Two products of one value with weights that have scales."""
    return [ops.linear(x, w1, scale1, dtype), ops.linear(x, w2, scale2, dtype)]


def _norm_cast(ops: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """A norm whose values are read by the cast only."""
    return ops.quantize_fp8(ops.rms_norm(x, weight, eps))  # type: ignore[no-any-return]


def _norm_rope_cast(ops: Any, x: Tensor, weight: Tensor, rows: Tensor, table: Tensor, eps: float,
                    cast: bool) -> Tensor:
    """A6 to A8: norm, rotary at each row's own position, cast."""
    key = ops.rotary(ops.rms_norm(x, weight, eps), rows, table, 1, False)
    return ops.quantize_fp8(key) if cast else key  # type: ignore[no-any-return]


def _grouped_out(ops: Any, x: Tensor, weight: Tensor, scale: Tensor, groups: int, dtype: torch.dtype) -> Tensor:
    """A15 and A16: the grouped product and the cast of its outputs."""
    return ops.quantize_fp8(ops.grouped_linear(x, weight, scale, groups, dtype))  # type: ignore[no-any-return]


def _one_width(x: Tensor, w1: Tensor, scale1: Tensor, w2: Tensor, *_: object) -> str | None:
    return None if w1.shape[1] == w2.shape[1] else f"weights of {w1.shape[1]} and {w2.shape[1]} columns"


def _whole_outputs(x: Tensor, weight: Tensor, scale: Tensor, groups: int, *_: object) -> str | None:
    """A scale may not span two groups: each is the work of other blocks."""
    return groups_reason(weight.shape[0] // groups)


def _one_key_a_row(x: Tensor, weight: Tensor, rows: Tensor, table: Tensor, *_: object) -> str | None:
    return None if x.dim() == 2 else f"keys of {x.dim()} dimensions, not 2"


SPECS: tuple[OpSpec, ...] = (
    fused_op(
        name="linear_pair",
        schema="(Tensor x, Tensor w1, Tensor scale1, Tensor w2, Tensor scale2, ScalarType dtype) -> Tensor[]",
        pads=PadRule.ROW, composition=_linear_pair,
        constraints=(same_dtype(1, 3, "w1 and w2"), Constraint("weights of one width", _one_width)),
    ),
    fused_op(
        name="norm_cast", schema="(Tensor x, Tensor weight, float eps) -> Tensor",
        pads=PadRule.ROW, composition=_norm_cast,
        constraints=(Constraint("whole groups", lambda x, *_: groups_reason(x.shape[-1])),),
    ),
    fused_op(
        name="norm_rope_cast",
        schema="(Tensor x, Tensor weight, Tensor rows, Tensor table, float eps, bool cast) -> Tensor",
        pads=PadRule.ROW, composition=_norm_rope_cast,
        constraints=(Constraint("one key a row", _one_key_a_row), whole_groups(0, 5)),
    ),
    fused_op(
        name="grouped_out",
        schema="(Tensor x, Tensor weight, Tensor scale, int groups, ScalarType dtype) -> Tensor",
        pads=PadRule.ROW, composition=_grouped_out,
        constraints=(Constraint("whole groups of every output group", _whole_outputs),),
    ),
)
