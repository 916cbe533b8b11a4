"""mHC sites: collapse with the carried alpha, norm, mix for this site's post and the next site's alpha."""

from __future__ import annotations

from collections.abc import Callable

import torch

from dsv41c.compiler.config import ModelConfig
from dsv41c.compiler.model.numerics import OPS
from dsv41c.compiler.model.scope import Scope

Streams = tuple[torch.Tensor, torch.Tensor]  # R act [T, S, H] and the carried alpha f32 [T, S]


def collapsed(config: ModelConfig, streams: Streams, norm: torch.Tensor) -> torch.Tensor:
    """RMSNorm(sum_s alpha_s R_s): act `[T, H]` (H1, H2)."""
    return OPS.rms_norm(OPS.mhc_collapse(*streams), norm, config.rms_norm_eps)


def site(config: ModelConfig, weights: Scope, kind: str, streams: Streams,
         sublayer: Callable[[torch.Tensor], torch.Tensor]) -> Streams:
    """One sublayer inside its mHC site; `kind` is `attn` or `ffn`. Mixing reads the trunk, not the output."""
    trunk, _ = streams
    x = collapsed(config, streams, weights(f"{kind}_norm.weight"))
    alpha, beta, gamma = OPS.mhc_mix(
        trunk, weights(f"hc_{kind}_fn"), weights(f"hc_{kind}_scale"), weights(f"hc_{kind}_base"),
        config.hc_sinkhorn_iters, config.rms_norm_eps, config.hc_eps)
    return OPS.mhc_post(sublayer(x), trunk, beta, gamma), alpha
