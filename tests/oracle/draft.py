"""The DSpark draft: window keys from target features, then a block of proposals in one pass."""

from __future__ import annotations

import numpy as np

from .blocks import collapse, expand, rms_norm, sigmoid
from .config import OracleConfig
from .layers import Chunk, Layer
from .state import State
from .weights import Linear, Weights


class Draft:
    """Draft layers and heads; embedding and output head are the backbone's."""

    def __init__(self, weights: Weights, config: OracleConfig) -> None:
        self.config = config
        count = config.num_nextn_predict_layers
        experts = config.dspark_n_routed_experts, config.dspark_num_experts_per_tok
        self.layers = [Layer(weights.under(f"mtp.{i}"), config, 0, *experts) for i in range(count)]
        first, last = weights.under("mtp.0"), weights.under(f"mtp.{count - 1}")
        self.main_proj, self.main_norm = first.linear("main_proj"), first.array("main_norm.weight")
        self.norm = last.array("norm.weight")
        self.markov_embed = last.array("markov_head.embed.weight")
        self.markov_head = last.linear("markov_head.head")
        self.confidence = last.linear("confidence_head.proj")

    def commit(self, features: np.ndarray, positions: np.ndarray, state: State) -> None:
        """features [T, taps*H] of target rows -> window keys of every draft layer."""
        mixed = rms_norm(self.main_proj(features), self.main_norm, self.config.rms_norm_eps)
        for layer, window in zip(self.layers, state.draft_windows, strict=True):
            window.write(positions, layer.attention.window_key(mixed, positions))

    def hidden(self, state: State, embedded: np.ndarray) -> np.ndarray:
        """embedded [B, H] of [newest token, noise...] at positions length.. -> collapsed rows [B, H]."""
        config = self.config
        size = len(embedded)
        streams, alpha = expand(embedded, config.hc_mult)
        chunk = Chunk(state.length + np.arange(size), np.zeros(size, dtype=bool), streams, alpha)
        lowest = max(state.length - config.sliding_window, state.decoder_floor, 0)
        past = np.arange(lowest, state.length)
        for layer, window in zip(self.layers, state.draft_windows, strict=True):
            x, attention = layer.attention_input(chunk), layer.attention
            own = attention.window_key(x, chunk.positions)
            keys = np.concatenate([window.read(past), own])
            keys = np.broadcast_to(keys, (size, *keys.shape))
            q = attention.query(attention.latent(x), chunk.positions)
            valid = np.ones(keys.shape[:2], dtype=bool)
            layer.finish(chunk, attention.output(q, keys, valid, chunk.positions))
        return collapse(chunk.streams, chunk.alpha)

    def propose(self, hidden: np.ndarray, head: Linear, token: int) -> tuple[list[int], list[float]]:
        """Greedy chain over the block: base logits plus the bigram correction of the previous token."""
        base = head(rms_norm(hidden, self.norm, self.config.rms_norm_eps))
        drafts: list[int] = []
        confidences: list[float] = []
        for row, logits in zip(hidden, base, strict=True):
            previous = self.markov_embed[token]
            confidences.append(float(sigmoid(self.confidence(np.concatenate([row, previous])))[0]))
            token = int(np.argmax(logits + self.markov_head(previous)))
            drafts.append(token)
        return drafts, confidences
