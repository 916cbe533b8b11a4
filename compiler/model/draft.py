"""DSpark: commit of target features into the draft windows, the draft block, bigram correction, confidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from dsv41c.compiler.config import ModelConfig
from dsv41c.compiler.model.attention import project_output, project_query, window_key
from dsv41c.compiler.model.hyper_connection import Streams, site
from dsv41c.compiler.model.moe import moe
from dsv41c.compiler.model.numerics import OPS, Numerics
from dsv41c.compiler.model.scope import Scope, TensorTree
from dsv41c.compiler.model.step import StepRows
from dsv41c.compiler.options import CompileOptions


def commit_features(config: ModelConfig, numerics: Numerics, weights: Scope, features: Sequence[torch.Tensor],
                    step: StepRows) -> None:
    """D1-D2: the tap features act `[T, H]` of this step's rows become keys of every draft layer's window."""
    # Groups of a cast do not straddle taps (H is whole groups), so each tap is cast where it is taken.
    joined = OPS.concat_columns([numerics.fp8(f) for f in features], numerics.dtype)
    projected = numerics.linear(joined, weights.quantized("mtp.0.main_proj"))
    target = numerics.fp8(OPS.rms_norm(projected, weights("mtp.0.main_norm.weight"), config.rms_norm_eps))
    for layer in range(config.num_nextn_predict_layers):
        scope, table = weights.below(f"mtp.{layer}.attn"), step.rotary_table(False)
        OPS.window_commit(window_key(config, numerics, scope, target, step, table), step.rows,
                          step.state(f"draft_window_{layer}"))


def draft_block(config: ModelConfig, numerics: Numerics, weights: Scope,
                step: StepRows) -> tuple[torch.Tensor, torch.Tensor]:
    """D3-D5. step.rows: groups of dspark_block_size rows `[golden, noise, ...]` at positions p.. of their slots.

    Returns the collapsed hidden h act `[T, H]` and base logits f32 `[T, V]`. Draft keys are never committed.
    """
    streams: Streams = OPS.embed_expand(step.rows, weights("embed.weight"), config.hc_mult, numerics.dtype)
    for layer in range(config.num_nextn_predict_layers):
        streams = _layer(config, numerics, layer, weights.below(f"mtp.{layer}"), streams, step)
    hidden = OPS.mhc_collapse(*streams)
    last = weights.below(f"mtp.{config.num_nextn_predict_layers - 1}")
    normed = OPS.rms_norm(hidden, last("norm.weight"), config.rms_norm_eps)
    return hidden, OPS.linear(normed, weights("head.weight"), None, torch.float32)


def _layer(config: ModelConfig, numerics: Numerics, layer: int, weights: Scope, streams: Streams,
           step: StepRows) -> Streams:
    def attend(x: torch.Tensor) -> torch.Tensor:
        scope, table, x8 = weights.below("attn"), step.rotary_table(False), numerics.fp8(x)
        query = project_query(config, numerics, scope, x8, step, table)
        key = window_key(config, numerics, scope, x8, step, table)
        o = OPS.draft_attention(query.heads, key, step.state(f"draft_window_{layer}"), scope("attn_sink"), step.rows,
                                config.sliding_window, float(config.head_dim) ** -0.5)
        return project_output(config, numerics, scope, o, step, table)

    def feed_forward(x: torch.Tensor) -> torch.Tensor:
        return moe(config, numerics, weights.below("ffn"), x, step.rows, config.dspark_num_experts_per_tok)

    streams = site(config, weights, "attn", streams, attend)
    return site(config, weights, "ffn", streams, feed_forward)


@dataclass(frozen=True)
class Drafts:
    """tokens int32 `[groups, block]`; confidence f32 `[groups, block]` in (0, 1)."""

    tokens: torch.Tensor
    confidence: torch.Tensor


def markov_chain(config: ModelConfig, weights: Scope, rows: torch.Tensor, hidden: torch.Tensor,
                 base_logits: torch.Tensor) -> Drafts:
    """D6-D7, greedy: each draft corrects the next row's logits by the rank-limited bigram of its token."""
    last = weights.below(f"mtp.{config.num_nextn_predict_layers - 1}")
    embed, head = last("markov_head.embed.weight"), last("markov_head.head.weight")
    proj = last("confidence_head.proj.weight")
    block, tokens, confidence = config.dspark_block_size, [], []
    previous = OPS.golden_token(rows, block)
    for j in range(block):
        bigram = OPS.embed_token(previous, embed)
        joined = OPS.confidence_input(hidden, bigram, block, j)
        confidence.append(OPS.sigmoid(OPS.linear(joined, proj, None, torch.float32)))
        correction = OPS.linear(bigram, head, None, torch.float32)
        previous = OPS.greedy_draft(OPS.markov_logits(base_logits, correction, block, j))
        tokens.append(previous)
    return Drafts(OPS.concat_columns(tokens, torch.int32), OPS.concat_columns(confidence, torch.float32))


class DraftModel(nn.Module):
    """The draft of a step as a program of its own; weights and state are those of the model."""

    def __init__(self, config: ModelConfig, options: CompileOptions, weights: Mapping[str, torch.Tensor] | TensorTree,
                 state: Mapping[str, torch.Tensor]) -> None:
        super().__init__()
        self.config = config
        self.suffix_mode = options.suffix_mode
        self.numerics = Numerics(options.torch_dtype, options.quantizers == "fake")
        self.weights = weights if isinstance(weights, TensorTree) else TensorTree(weights)
        self.state = TensorTree(state)

    def forward(self, upload: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """upload int32 `[G, 5]`: slot and newest sampled token of each group (-1: the slot's token on the device),
        whose position is not committed yet. Returns tokens int32 and confidence f32, both `[G, block]`."""
        config, weights, state = self.config, Scope(self.weights), Scope(self.state)
        rows = OPS.draft_row_table(upload, state("slot_token"), state("slot_position"), config.dspark_block_size,
                                   config.dspark_noise_token_id)
        if self.suffix_mode != "off":  # below its floor a window holds keys of an earlier request
            rows = OPS.window_floor(rows, state("window_floor"))
        step = StepRows(rows, state, weights.below("constants"))
        hidden, logits = draft_block(config, self.numerics, weights, step)
        drafts = markov_chain(config, weights, rows, hidden, logits)
        return drafts.tokens, drafts.confidence
