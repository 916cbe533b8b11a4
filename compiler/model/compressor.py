"""Compressor of the KV source layers: latent of each group of tokens, compressed KV and index key stores."""

from __future__ import annotations

import torch

from dsv41c.compiler.config import ModelConfig
from dsv41c.compiler.model.numerics import OPS, Numerics
from dsv41c.compiler.model.scope import Scope
from dsv41c.compiler.model.step import StepRows


def compress(config: ModelConfig, numerics: Numerics, layer: int, weights: Scope, x: torch.Tensor,
             step: StepRows) -> None:
    """C1-C6 and I1-I4: writes this step's complete groups of `layer` into the page pools. x: act `[T, H]`."""
    ratio, table = config.ratio(layer), step.rotary_table(True)
    latent = OPS.rms_norm(_latent(numerics, layer, ratio, weights, x, step), weights("compressor.norm.weight"),
                          config.rms_norm_eps)
    entry = numerics.fp4_kv(OPS.rotary(latent, step.rows, table, ratio, False))
    page_table = step.state("page_table")
    OPS.entry_store(entry, step.rows, page_table, step.state(f"compressed_{layer}"), ratio)
    key = OPS.linear(latent, weights("indexer.wk.weight"), None, numerics.dtype)
    key = OPS.rms_norm(key, weights("indexer.k_norm.weight"), config.rms_norm_eps)
    key = numerics.fp4_index(OPS.rotary(key, step.rows, table, ratio, False))
    OPS.entry_store(key, step.rows, page_table, step.state(f"index_key_{layer}"), ratio)


def _latent(numerics: Numerics, layer: int, ratio: int, weights: Scope, x: torch.Tensor,
            step: StepRows) -> torch.Tensor:
    """Un-normed latent act `[T, D]`, meaningful on the rows that complete a group."""
    wkv = weights("compressor.wkv.weight")
    if ratio == 1:
        return OPS.linear(x, wkv, None, numerics.dtype)
    kv = OPS.linear(x, wkv, None, torch.float32)
    gate = OPS.linear(x, weights("compressor.wgate.weight"), None, torch.float32)
    return OPS.compress_pairs(kv, gate, step.rows, step.state(f"pair_{layer}"), numerics.dtype)
