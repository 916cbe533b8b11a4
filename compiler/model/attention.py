"""Attention sublayer: low-rank query, one shared window key/value, selected compressed entries, grouped output."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dsv41c.compiler.config import ModelConfig
from dsv41c.compiler.model.compressor import compress
from dsv41c.compiler.model.indexer import Selection, select
from dsv41c.compiler.model.numerics import OPS, Numerics
from dsv41c.compiler.model.scope import Scope
from dsv41c.compiler.model.step import StepRows


@dataclass(frozen=True)
class Query:
    """latent: cast and normalised act `[T, q_lora_rank]`; heads: rotated act `[T, heads, head_dim]`."""

    latent: torch.Tensor
    heads: torch.Tensor


def project_query(config: ModelConfig, numerics: Numerics, weights: Scope, x8: torch.Tensor, step: StepRows,
                  table: torch.Tensor) -> Query:
    """A1-A4. There is no per-head norm."""
    latent = OPS.rms_norm(numerics.linear(x8, weights.quantized("wq_a")), weights("q_norm.weight"), config.rms_norm_eps)
    latent = numerics.fp8(latent)
    heads = numerics.linear(latent, weights.quantized("wq_b")).view(-1, config.num_attention_heads, config.head_dim)
    return Query(latent, OPS.rotary(heads, step.rows, table, 1, False))


def window_key(config: ModelConfig, numerics: Numerics, weights: Scope, x8: torch.Tensor, step: StepRows,
               table: torch.Tensor) -> torch.Tensor:
    """A5-A8: act `[T, head_dim]`, key and value of all heads."""
    key = OPS.rms_norm(numerics.linear(x8, weights.quantized("wkv")), weights("kv_norm.weight"), config.rms_norm_eps)
    return numerics.fp8(OPS.rotary(key, step.rows, table, 1, False))


def project_output(config: ModelConfig, numerics: Numerics, weights: Scope, o: torch.Tensor, step: StepRows,
                   table: torch.Tensor) -> torch.Tensor:
    """A13-A17: inverse rotary at the query position, grouped product, output product. o: act `[T, heads, D]`."""
    groups = config.o_groups
    o = OPS.rotary(o, step.rows, table, 1, True)
    o = numerics.fp8(o.view(-1, groups, config.num_attention_heads * config.head_dim // groups))
    weight, scale = weights.quantized("wo_a")
    z = numerics.fp8(OPS.grouped_linear(o, weight, scale, groups, numerics.dtype))
    return numerics.linear(z, weights.quantized("wo_b"))


@dataclass(frozen=True)
class AttentionResult:
    y: torch.Tensor
    selection: Selection | None


def attention(config: ModelConfig, numerics: Numerics, layer: int, weights: Scope, x: torch.Tensor, step: StepRows,
              previous: Selection | None, is_compressed_already: bool) -> AttentionResult:
    """One attention sublayer on x act `[T, H]`; the ring is read before this step's rows are committed to it."""
    ratio, x8 = config.ratio(layer), numerics.fp8(x)
    table = step.rotary_table(ratio > 0)
    query = project_query(config, numerics, weights, x8, step, table)
    key = window_key(config, numerics, weights, x8, step, table)
    window, sink = step.state(f"window_{layer}"), weights("attn_sink")
    scale = float(config.head_dim) ** -0.5
    if layer in config.kv_source_layer_ids and not is_compressed_already:
        compress(config, numerics, layer, weights, x, step)
    selection = previous
    if layer in config.index_source_layer_ids:
        selection = select(config, numerics, layer, weights, x, query.latent, step, previous)
    if ratio == 0:
        o = OPS.window_attention(query.heads, key, window, sink, step.rows, config.sliding_window, scale)
    else:
        assert selection is not None
        o = OPS.sparse_attention(query.heads, key, window, step.state(f"compressed_{config.kv_source(layer)}"),
                                 step.state("page_table"), selection.selected, sink, step.rows,
                                 config.sliding_window, ratio, scale)
    OPS.window_commit(key, step.rows, window)
    return AttentionResult(project_output(config, numerics, weights, o, step, table), selection)
