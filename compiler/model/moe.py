"""MoE sublayer: gate, routed FP4 experts, one shared FP8 expert."""

from __future__ import annotations

import torch

from dsv41c.compiler.config import ModelConfig
from dsv41c.compiler.model.numerics import OPS, Numerics
from dsv41c.compiler.model.scope import Scope

WORLD_SIZE = 1  # ranks that share the routed experts

def moe(config: ModelConfig, numerics: Numerics, weights: Scope, x: torch.Tensor, rows: torch.Tensor,
        topk: int) -> torch.Tensor:
    """M1-M14 on x act `[T, H]`; the routing weight enters before the down projection and its cast."""
    scores = OPS.linear(x, weights("gate.weight"), None, torch.float32)
    expert, routing = OPS.moe_route(scores, weights("gate.bias"), weights("gate.bias_vl"), rows, topk,
                                    config.routed_scaling_factor)
    x8, limit = numerics.fp8(x), config.swiglu_limit
    stacked = [t for name in ("w1", "w3", "w2") for t in weights.quantized(f"experts.{name}")]
    sent, chosen, share = OPS.expert_dispatch(x8, expert, routing, WORLD_SIZE)
    routed = OPS.expert_combine(OPS.moe_experts(sent, chosen, share, *stacked, limit, numerics.fake), WORLD_SIZE)
    shared = weights.below("shared_experts")
    gate = numerics.linear(x8, shared.quantized("w1"), torch.float32)
    up = numerics.linear(x8, shared.quantized("w3"), torch.float32)
    a = numerics.fp8(OPS.swiglu(gate, up, limit, numerics.dtype))
    return OPS.combine_experts(routed, numerics.linear(a, shared.quantized("w2"), torch.float32), numerics.dtype)
