"""Compressed entries (compressor), index keys and queries (indexer), and the selections made from them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .blocks import rms_norm, rotate
from .config import OracleConfig
from .state import SourceState
from .weights import Weights


def pool_groups(kv: np.ndarray, gate: np.ndarray) -> np.ndarray:
    """kv, gate [groups, ratio, D] -> [groups, D]: softmax of the gates over the group, per channel."""
    weight = np.exp(gate - gate.max(1, keepdims=True))
    return (weight / weight.sum(1, keepdims=True) * kv).sum(1)


def best(score: np.ndarray, allowed: np.ndarray, count: int) -> np.ndarray:
    """score, allowed [T, n] -> the `count` best allowed columns, ascending, padded with -1.

    Equal scores: the lower column first. A score may be +inf; only `allowed` excludes a column.
    """
    ranked = np.argsort(np.where(allowed, -score, np.inf), axis=-1, kind="stable")[:, :count]
    columns = np.where(np.take_along_axis(allowed, ranked, -1), ranked, score.shape[1])
    columns.sort(axis=-1)
    return np.where(columns < score.shape[1], columns, -1)


def chosen_mask(columns: np.ndarray, count: int) -> np.ndarray:
    """Padded column lists [T, k] -> boolean [T, count]."""
    mask = np.zeros((len(columns), count + 1), dtype=bool)
    np.put_along_axis(mask, np.where(columns < 0, count, columns), True, axis=-1)
    return mask[:, :count]


def candidate_blocks(score: np.ndarray, visible: np.ndarray, block: int, count: int) -> np.ndarray:
    """Best `count` blocks of `block` entries per row, [T, <=count] padded -1; the newest is always kept."""
    rows, entries = score.shape
    blocks = -(-entries // block)
    padded = np.full((rows, blocks * block), -np.inf)
    padded[:, :entries] = np.where(visible, score, -np.inf)
    block_score = padded.reshape(rows, blocks, block).max(-1)
    visible_blocks = -(-visible.sum(-1) // block)
    some = np.nonzero(visible_blocks)[0]
    block_score[some, visible_blocks[some] - 1] = np.inf
    return best(block_score, np.arange(blocks) < visible_blocks[:, None], count)


@dataclass
class Selection:
    """What an index source leaves for the layers after it."""

    entries: np.ndarray  # [T, k] ascending, -1 padded
    blocks: np.ndarray | None = None  # [T, b] of the candidate source

    def take(self, keep: np.ndarray) -> Selection:
        """The same for a subset of the rows."""
        return Selection(self.entries[keep], None if self.blocks is None else self.blocks[keep])


class Compressor:
    """Builds the entries and index keys of one source layer."""

    def __init__(self, weights: Weights, config: OracleConfig, ratio: int, frequencies: np.ndarray) -> None:
        self.ratio, self.frequencies, self.eps = ratio, frequencies, config.rms_norm_eps
        self.wkv = weights.linear("compressor.wkv")
        self.wgate = weights.linear("compressor.wgate") if ratio > 1 else None
        self.norm = weights.array("compressor.norm.weight")
        self.wk, self.k_norm = weights.linear("indexer.wk"), weights.array("indexer.k_norm.weight")
        self.quantizers = weights.quantizers

    def store(self, x: np.ndarray, positions: np.ndarray, source: SourceState) -> None:
        """x [T, H] of consecutive positions. Positions the source has seen already are left alone."""
        fresh = positions >= source.length
        if not fresh.any():
            return
        x, positions = x[fresh], positions[fresh]
        source.kv.write(positions, self.wkv(x))
        source.gate.write(positions, self.wgate(x) if self.wgate else np.zeros((len(x), len(self.norm))))
        source.length = int(positions[-1]) + 1
        entries = np.arange(source.entries.count, source.length // self.ratio)
        first = entries * self.ratio
        members = first[:, None] + np.arange(self.ratio)
        latent = rms_norm(
            pool_groups(source.kv.read(members), source.gate.read(members)), self.norm, self.eps
        )
        index_key = rms_norm(self.wk(latent), self.k_norm, self.eps)
        source.entries.write(entries, self.quantizers.fp4_kv(rotate(latent, first, self.frequencies)))
        source.index_keys.write(
            entries, self.quantizers.fp4_index(rotate(index_key, first, self.frequencies))
        )


class Indexer:
    """Scores entries for each row and selects the best ones."""

    def __init__(self, weights: Weights, config: OracleConfig, layer: int, frequencies: np.ndarray) -> None:
        self.config, self.layer, self.frequencies = config, layer, frequencies
        self.wq_b, self.weights_proj = weights.linear("wq_b"), weights.linear("weights_proj")
        self.quantize = weights.quantizers.fp4_index

    def score(self, latent: np.ndarray, x: np.ndarray, positions: np.ndarray, keys: np.ndarray) -> np.ndarray:
        """latent [T, QR], x [T, H], keys [n, Di] -> [T, n]: weighted sum over heads of relu(q.k)."""
        heads, width = self.config.index_n_heads, self.config.index_head_dim
        q = self.quantize(rotate(self.wq_b(latent).reshape(-1, heads, width), positions, self.frequencies))
        head_weight = self.weights_proj(x) * (width * heads) ** -0.5
        return np.einsum("th,thn->tn", head_weight, np.maximum(q @ keys.T, 0))

    def select(
        self,
        latent: np.ndarray,
        x: np.ndarray,
        positions: np.ndarray,
        source: SourceState,
        previous: Selection | None,
        candidates: bool,
    ) -> Selection:
        """Selection of this layer; `candidates` off ignores the blocks (equivalence F)."""
        config = self.config
        keys = source.index_keys.all()
        score = self.score(latent, x, positions, keys)
        visible = np.arange(len(keys)) < ((positions + 1) // source.ratio)[:, None]
        if self.layer == config.candidate_source_layer_id:
            blocks = candidate_blocks(
                score, visible, config.candidate_block_size, config.candidate_topk_blocks
            )
            return Selection(best(score, visible, config.index_topk), blocks)
        inherited = previous.blocks if previous else None
        if inherited is None or not candidates:
            return Selection(best(score, visible, config.index_topk), inherited)
        count = -(-len(keys) // config.candidate_block_size)
        allowed = np.repeat(chosen_mask(inherited, count), config.candidate_block_size, axis=-1)
        return Selection(best(score, visible & allowed[:, : len(keys)], config.index_topk), inherited)
