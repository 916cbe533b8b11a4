"""Fused ops of the mixture of experts."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dsv41c.compiler.ops.constraints import whole_groups
from dsv41c.compiler.ops.fused import fused_op
from dsv41c.compiler.ops.spec import Constraint, OpSpec, PadRule

_ORDER = "choices are summed in the order given"
_TENSORS = ("Tensor x, Tensor expert, Tensor weight, Tensor w1, Tensor w1_scale, Tensor w3, Tensor w3_scale, "
            "Tensor w2, Tensor w2_scale, Tensor shared1, Tensor shared1_scale, Tensor shared3, Tensor shared3_scale, "
            "Tensor shared2, Tensor shared2_scale, float limit, ScalarType dtype, ")


def _shared(ops: Any, x: Tensor, w1: Tensor, w1_scale: Tensor, w3: Tensor, w3_scale: Tensor, w2: Tensor,
            w2_scale: Tensor, limit: float, dtype: torch.dtype, cast: bool) -> Any:
    """M9 to M13: the shared expert of every row."""
    gate = ops.linear(x, w1, w1_scale, torch.float32)
    up = ops.linear(x, w3, w3_scale, torch.float32)
    a = ops.swiglu(gate, up, limit, dtype)
    return ops.linear(ops.quantize_fp8(a) if cast else a, w2, w2_scale, torch.float32)


def _mega_moe(ops: Any, x: Tensor, expert: Tensor, weight: Tensor, w1: Tensor, w1_scale: Tensor, w3: Tensor,
              w3_scale: Tensor, w2: Tensor, w2_scale: Tensor, shared1: Tensor, shared1_scale: Tensor, shared3: Tensor,
              shared3_scale: Tensor, shared2: Tensor, shared2_scale: Tensor, limit: float, dtype: torch.dtype,
              cast: bool) -> Any:
    """Routed and shared experts of rows that stay where they are, and their sum."""
    routed = ops.moe_experts(x, expert, weight, w1, w1_scale, w3, w3_scale, w2, w2_scale, limit, cast)
    shared = _shared(ops, x, shared1, shared1_scale, shared3, shared3_scale, shared2, shared2_scale, limit, dtype, cast)
    return ops.combine_experts(routed, shared, dtype)


def _mega_moe_exchange(ops: Any, x: Tensor, expert: Tensor, weight: Tensor, w1: Tensor, w1_scale: Tensor, w3: Tensor,
                       w3_scale: Tensor, w2: Tensor, w2_scale: Tensor, shared1: Tensor, shared1_scale: Tensor,
                       shared3: Tensor, shared3_scale: Tensor, shared2: Tensor, shared2_scale: Tensor, limit: float,
                       dtype: torch.dtype, world_size: int, cast: bool) -> Any:
    """The same where rows travel to the rank that holds their experts and back."""
    sent, chosen, routing = ops.expert_dispatch(x, expert, weight, world_size)
    routed = ops.moe_experts(sent, chosen, routing, w1, w1_scale, w3, w3_scale, w2, w2_scale, limit, cast)
    routed = ops.expert_combine(routed, world_size)
    shared = _shared(ops, x, shared1, shared1_scale, shared3, shared3_scale, shared2, shared2_scale, limit, dtype, cast)
    return ops.combine_experts(routed, shared, dtype)


def _mega_gate(ops: Any, x: Tensor, weight: Tensor, bias: Tensor, bias_vl: Tensor, rows: Tensor, topk: int,
               routed_scale: float) -> Any:
    """M1 to M5: the gate's product and the choice of experts: [ids int32 `[T, k]`, weights f32 `[T, k]`]."""
    return ops.moe_route(ops.linear(x, weight, None, torch.float32), bias, bias_vl, rows, topk, routed_scale)


def _enough_experts(x: Tensor, weight: Tensor, bias: Tensor, bias_vl: Tensor, rows: Tensor, topk: int,
                    *_: object) -> str | None:
    return None if topk <= weight.shape[0] else f"{topk} of {weight.shape[0]} experts"


SPECS: tuple[OpSpec, ...] = (
    fused_op(
        name="mega_gate",
        schema="(Tensor x, Tensor weight, Tensor bias, Tensor bias_vl, Tensor rows, int topk, float routed_scale) "
               "-> (Tensor, Tensor)",
        pads=PadRule.ROW, tie_order="lower expert id first", composition=_mega_gate,
        constraints=(Constraint("topk is at most the number of experts", _enough_experts),),
    ),
    fused_op(
        name="mega_moe", schema=f"({_TENSORS}bool cast) -> Tensor",
        pads=PadRule.ROW, tie_order=_ORDER, composition=_mega_moe, constraints=(whole_groups(9, 17, 0),),
    ),
    fused_op(
        name="mega_moe_exchange", schema=f"({_TENSORS}int world_size, bool cast) -> Tensor",
        pads=PadRule.ROW, tie_order=_ORDER, composition=_mega_moe_exchange, constraints=(whole_groups(9, 18, 0),),
    ),
)
