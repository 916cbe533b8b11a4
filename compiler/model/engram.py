"""Engram: n-gram hashes of all Engram layers at once, table look-up, gated addition to every stream."""

from __future__ import annotations

import torch

from dsv41c.compiler.config import ModelConfig
from dsv41c.compiler.model.numerics import OPS, Numerics
from dsv41c.compiler.model.scope import Scope
from dsv41c.compiler.model.step import StepRows


def engram_rows(config: ModelConfig, step: StepRows) -> torch.Tensor:
    """G1-G2: int32 `[T, layers, (n-1)*heads]` table rows; commits this step's tokens to the history ring."""
    c = step.constants
    return OPS.engram_hash(step.rows, c("engram_token_map"), c("engram_multipliers"), c("engram_moduli"),
                           c("engram_offsets"), step.state("token_ring"), config.engram_pad_token_id)


def engram(config: ModelConfig, numerics: Numerics, layer: int, weights: Scope, trunk: torch.Tensor,
           table_rows: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """G3-G7: the trunk act `[T, S, H]` with gate_s * V added; image rows pass through."""
    table, scale = weights.quantized("embed")
    position = config.engram_layer_ids.index(layer)
    e = numerics.fp8(OPS.engram_lookup(table_rows, table, scale, position, numerics.dtype))
    kv = numerics.linear(e, weights.quantized("wkv"))
    return OPS.engram_gate(trunk, kv, weights("q_weight"), weights("k_weight"), rows, config.rms_norm_eps)
