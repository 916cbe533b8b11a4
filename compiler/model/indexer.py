"""Indexer: which compressed entries a row attends to, with layer 20's candidate blocks for the reindex layers."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dsv41c.compiler.config import ModelConfig
from dsv41c.compiler.model.numerics import OPS, Numerics
from dsv41c.compiler.model.scope import Scope
from dsv41c.compiler.model.step import StepRows


@dataclass(frozen=True)
class Selection:
    """selected: int32 `[T, topk]` ascending, padded -1; blocks: candidate blocks int32, or None before them."""

    selected: torch.Tensor
    blocks: torch.Tensor | None


def select(config: ModelConfig, numerics: Numerics, layer: int, weights: Scope, x: torch.Tensor,
           latent_query: torch.Tensor, step: StepRows, previous: Selection | None) -> Selection:
    """I5-I11 for an index source layer. latent_query: the cast, normalised q latent act `[T, q_lora_rank]`."""
    heads, dim = config.index_n_heads, config.index_head_dim
    query = numerics.linear(latent_query, weights.quantized("indexer.wq_b")).view(-1, heads, dim)
    query = numerics.fp4_index(OPS.rotary(query, step.rows, step.rotary_table(True), 1, False))
    gate = OPS.linear(x, weights("indexer.weights_proj.weight"), None, torch.float32)
    keys, pages = step.state(f"index_key_{config.kv_source(layer)}"), step.state("page_table")
    scored = (query, gate, keys, pages, step.rows)
    topk, ratio, scale = config.index_topk, config.ratio(layer), float(heads * dim) ** -0.5
    block = config.candidate_block_size
    if layer == config.candidate_source_layer_id:
        return Selection(*OPS.index_topk_blocks(*scored, topk, ratio, scale, block, config.candidate_topk_blocks))
    if previous is not None and previous.blocks is not None:
        return Selection(OPS.index_topk_within(*scored, previous.blocks, topk, ratio, scale, block), previous.blocks)
    return Selection(OPS.index_topk(*scored, topk, ratio, scale), None)
