"""The V4.1 main model as one module over packed rows: what is captured, and what the eager model runs."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from dsv41c.compiler.config import ModelConfig
from dsv41c.compiler.model.attention import attention
from dsv41c.compiler.model.compressor import compress
from dsv41c.compiler.model.draft import commit_features
from dsv41c.compiler.model.engram import engram, engram_rows
from dsv41c.compiler.model.hyper_connection import Streams, collapsed, site
from dsv41c.compiler.model.indexer import Selection
from dsv41c.compiler.model.moe import moe
from dsv41c.compiler.model.numerics import OPS, Numerics
from dsv41c.compiler.model.scope import Scope, TensorTree
from dsv41c.compiler.model.step import StepRows
from dsv41c.compiler.options import CompileOptions

SUFFIX, LOGITS = "suffix", "logits"  # the two boundaries at which rows are taken


class Transformer(nn.Module):
    """`weights`: checkpoint tensors (experts stacked) and constants by name, or a tree of them; `state`: as
    `state_specs` lists."""

    def __init__(self, config: ModelConfig, options: CompileOptions,
                 weights: Mapping[str, torch.Tensor] | TensorTree, state: Mapping[str, torch.Tensor]) -> None:
        super().__init__()
        self.config = config
        self.options = options
        self.numerics = Numerics(options.torch_dtype, options.quantizers == "fake")
        self.weights = weights if isinstance(weights, TensorTree) else TensorTree(weights)
        self.state = TensorTree(state)

    def forward(self, upload: torch.Tensor, keep_rows: torch.Tensor,
                logit_rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """upload int32 `[T, 5]`, keep_rows and logit_rows int32 `[T]` (-1 = pad).

        Returns logits f32 `[T, V]` and greedy tokens int32 `[T]` of the taken rows. When the state holds draft
        windows, the tap features of the kept rows are committed to them.
        """
        config, weights, state = self.config, Scope(self.weights), Scope(self.state)
        rows = OPS.row_table(upload, state("slot_token"), state("slot_position"), state("page_table"),
                             state("replay_floor"), self.options.block_size)
        step = StepRows(rows, state, weights.below("constants"))
        streams: Streams = OPS.embed_expand(rows, weights("embed.weight"), config.hc_mult, self.numerics.dtype)
        table_rows = engram_rows(config, step)
        selection: Selection | None = None
        features: list[torch.Tensor] = []
        for layer in range(config.num_hidden_layers):
            if layer == config.decoder_start:
                step, streams = self._enter_suffix(layer, step, streams, keep_rows)
            if layer in config.engram_layer_ids:
                trunk = engram(config, self.numerics, layer, weights.below(f"layers.{layer}.engram"), streams[0],
                               table_rows, step.rows)
                streams = trunk, streams[1]
            if self._has_draft and layer in config.dspark_target_layer_ids:
                features.append(OPS.stream_mean(streams[0]))
            streams, selection = self._layer(layer, step, streams, selection)
        if self._has_draft:
            commit_features(config, self.numerics, weights, features, step)
        return self._head(step, streams, logit_rows)

    @property
    def _has_draft(self) -> bool:
        return hasattr(self.state, "draft_window_0")

    def _enter_suffix(self, layer: int, step: StepRows, streams: Streams,
                      keep_rows: torch.Tensor) -> tuple[StepRows, Streams]:
        """The decoder's global KV is written for all rows; everything after it sees the kept rows only."""
        weights = Scope(self.weights).below(f"layers.{layer}")
        x = collapsed(self.config, streams, weights("attn_norm.weight"))
        compress(self.config, self.numerics, layer, weights.below("attn"), x, step)
        rows = OPS.take_row_table(step.rows, keep_rows, self.options.max_num_seqs, SUFFIX)
        if self.options.suffix_mode != "off":
            rows = OPS.window_floor(rows, step.state("window_floor"))
        taken = OPS.take_rows(streams[0], keep_rows, SUFFIX), OPS.take_rows(streams[1], keep_rows, SUFFIX)
        return StepRows(rows, step.state, step.constants), taken

    def _layer(self, layer: int, step: StepRows, streams: Streams,
               selection: Selection | None) -> tuple[Streams, Selection | None]:
        config, weights = self.config, Scope(self.weights).below(f"layers.{layer}")
        chosen = [selection]

        def attend(x: torch.Tensor) -> torch.Tensor:
            result = attention(config, self.numerics, layer, weights.below("attn"), x, step, chosen[0],
                               layer == config.decoder_start)
            chosen[0] = result.selection
            return result.y

        def feed_forward(x: torch.Tensor) -> torch.Tensor:
            return moe(config, self.numerics, weights.below("ffn"), x, step.rows, config.num_experts_per_tok)

        streams = site(config, weights, "attn", streams, attend)
        return site(config, weights, "ffn", streams, feed_forward), chosen[0]

    def _head(self, step: StepRows, streams: Streams, logit_rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """F1-F3 on the requested rows; the greedy token also becomes the slot's device-side token."""
        weights, state = Scope(self.weights), Scope(self.state)
        hidden = collapsed(self.config, streams, weights("norm.weight"))
        rows = OPS.take_row_table(step.rows, logit_rows, self.options.max_num_seqs, LOGITS)
        logits = OPS.linear(OPS.take_rows(hidden, logit_rows, LOGITS), weights("head.weight"), None, torch.float32)
        return logits, OPS.greedy_token(logits, rows, state("slot_token"))
