"""Engram: n-gram hashes of the token history pick table rows whose value is gated into every stream."""

from __future__ import annotations

import numpy as np

from .blocks import sigmoid
from .config import OracleConfig, engram_moduli, engram_multipliers
from .weights import Weights


def history_ids(
    tokens: np.ndarray, positions: np.ndarray, token_map: np.ndarray, size: int, pad: int
) -> np.ndarray:
    """Compressed ids of each row and its predecessors [T, size], newest first.

    tokens [n] is the whole history, -1 for image rows; before the start and from an image row
    backwards every slot holds the pad token.
    """
    at = positions[:, None] - np.arange(size)
    raw = np.where(at >= 0, tokens[np.maximum(at, 0)], -1)
    known = np.logical_and.accumulate(raw >= 0, axis=-1)
    return token_map[np.where(known, raw, pad)]


def hash_rows(ids: np.ndarray, multipliers: np.ndarray, moduli: np.ndarray) -> np.ndarray:
    """ids [T, n] -> table rows int64 [T, (n-1)*heads], order n then head, each head in its own range."""
    products = ids * multipliers
    hashes = np.bitwise_xor.accumulate(products, axis=-1)[:, 1:]
    flat = moduli.ravel()
    offsets = np.cumsum(flat) - flat
    return (hashes[:, :, None] % moduli).reshape(len(ids), -1) + offsets


class Engram:
    """The Engram block of one layer."""

    def __init__(self, weights: Weights, config: OracleConfig, layer: int, token_map: np.ndarray) -> None:
        self.weights, self.config, self.token_map = weights, config, token_map
        self.moduli = engram_moduli(config)[config.engram_layer_ids.index(layer)]
        self.multipliers = engram_multipliers(config, layer)
        self.wkv = weights.linear("wkv")
        self.qk_weight = weights.array("q_weight") * weights.array("k_weight")

    def __call__(
        self, streams: np.ndarray, tokens: np.ndarray, positions: np.ndarray, image: np.ndarray
    ) -> np.ndarray:
        """streams [T, S, H] with the gated value added; image rows pass through."""
        config = self.config
        ids = history_ids(
            tokens, positions, self.token_map, config.engram_max_ngram_size, config.engram_pad_token_id
        )
        rows = hash_rows(ids, self.multipliers, self.moduli)
        looked_up = self.weights.table_rows("embed", rows).reshape(len(rows), -1)
        kv = self.wkv(looked_up).reshape(len(rows), config.hc_mult + 1, config.hidden_size)
        keys, value = kv[:, :-1], kv[:, -1:]
        gated = streams + self._gate(streams, keys)[..., None] * value
        return np.where(image[:, None, None], streams, gated)

    def _gate(self, streams: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """[T, S]: sigmoid of the signed square root of the normalised dot product."""
        eps = self.config.rms_norm_eps
        dot = (streams * self.qk_weight * keys).sum(-1) / np.sqrt(self.config.hidden_size)
        dot = dot / np.sqrt((streams**2).mean(-1) + eps) / np.sqrt((keys**2).mean(-1) + eps)
        return sigmoid(np.sign(dot) * np.sqrt(np.maximum(np.abs(dot), 1e-6)))
