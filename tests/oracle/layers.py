"""One transformer layer: its weights, its attention, and the two half-steps around the stream mix."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .blocks import Experts, Mixer, attend, collapse, post, rms_norm, rotate
from .config import OracleConfig, rotary_frequencies
from .engram import Engram
from .sources import Compressor, Indexer, Selection
from .state import Rows
from .weights import Weights


@dataclass
class Chunk:
    """Rows of one forward call; `take` narrows them at the decoder boundary."""

    positions: np.ndarray  # int64 [T], consecutive
    image: np.ndarray  # bool [T]
    streams: np.ndarray  # [T, S, H]
    alpha: np.ndarray  # [T, S], the mix the next collapse reads
    selection: Selection | None = None

    def take(self, keep: np.ndarray) -> Chunk:
        """The rows where `keep` [T] is true."""
        selection = self.selection.take(keep) if self.selection else None
        return Chunk(self.positions[keep], self.image[keep], self.streams[keep], self.alpha[keep], selection)


class Attention:
    """Projections of the attention sublayer; which keys a row sees is the caller's business."""

    def __init__(self, weights: Weights, config: OracleConfig, compressed: bool) -> None:
        self.config = config
        self.frequencies = rotary_frequencies(config, compressed)
        self.wq_a, self.wq_b, self.wkv = (weights.linear(name) for name in ("wq_a", "wq_b", "wkv"))
        self.q_norm, self.kv_norm = weights.array("q_norm.weight"), weights.array("kv_norm.weight")
        wo_a = weights.matrix("wo_a")
        self.wo_a = wo_a.reshape(config.o_groups, -1, wo_a.shape[1])
        self.wo_b = weights.linear("wo_b")
        self.sink = weights.array("attn_sink")
        self.quantize = weights.quantizers.fp8

    def latent(self, x: np.ndarray) -> np.ndarray:
        """Normalised query latent [T, QR]."""
        return rms_norm(self.wq_a(x), self.q_norm, self.config.rms_norm_eps)

    def query(self, latent: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Rotated queries [T, N, D]."""
        heads, width = self.config.num_attention_heads, self.config.head_dim
        return rotate(self.wq_b(latent).reshape(-1, heads, width), positions, self.frequencies)

    def window_key(self, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """The row's own key (= value) as stored [T, D]."""
        key = rms_norm(self.wkv(x), self.kv_norm, self.config.rms_norm_eps)
        return self.quantize(rotate(key, positions, self.frequencies))

    def output(self, q: np.ndarray, keys: np.ndarray, valid: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Attend, turn back at the query position, grouped output projection: [T, H]."""
        o = rotate(attend(q, keys, valid, self.sink), positions, self.frequencies, inverse=True)
        groups, rank, width = self.wo_a.shape
        o = self.quantize(o.reshape(len(o), groups, width))
        z = np.einsum("tgd,grd->tgr", o, self.wo_a)
        return self.wo_b(z.reshape(len(z), groups * rank))


def window_keys(window: Rows, positions: np.ndarray, size: int, floor: int) -> tuple[np.ndarray, np.ndarray]:
    """Keys [T, size, D] of positions t-size+1..t and which of them row t may read [T, size]."""
    at = positions[:, None] + np.arange(1 - size, 1)
    return window.read(at), at >= max(floor, 0)


class Layer:
    """Weights of one layer of the backbone or of the draft (which has no sources and no Engram)."""

    def __init__(
        self, weights: Weights, config: OracleConfig, ratio: int, expert_count: int, active_experts: int
    ) -> None:
        self.eps = config.rms_norm_eps
        self.attn_norm, self.ffn_norm = weights.array("attn_norm.weight"), weights.array("ffn_norm.weight")
        self.attn_mix, self.ffn_mix = Mixer(weights, "attn", config), Mixer(weights, "ffn", config)
        self.attention = Attention(weights.under("attn"), config, compressed=ratio > 0)
        self.experts = Experts(weights.under("ffn"), config, expert_count, active_experts)
        self.engram: Engram | None = None
        self.compressor: Compressor | None = None
        self.indexer: Indexer | None = None

    def attention_input(self, chunk: Chunk) -> np.ndarray:
        """Normalised collapse [T, H]."""
        return rms_norm(collapse(chunk.streams, chunk.alpha), self.attn_norm, self.eps)

    def finish(self, chunk: Chunk, attended: np.ndarray) -> None:
        """Write the attention output [T, H] back and run the expert sublayer; updates streams and alpha."""
        alpha, beta, gamma = self.attn_mix(chunk.streams)
        chunk.streams = post(attended, chunk.streams, beta, gamma)
        x = rms_norm(collapse(chunk.streams, alpha), self.ffn_norm, self.eps)
        chunk.alpha, beta, gamma = self.ffn_mix(chunk.streams)
        chunk.streams = post(self.experts(x, chunk.image), chunk.streams, beta, gamma)


def backbone_layer(weights: Weights, config: OracleConfig, layer: int, token_map: np.ndarray) -> Layer:
    """Layer `layer` of the backbone with whatever its role adds."""
    ratio = config.compress_ratios[layer]
    built = Layer(weights, config, ratio, config.n_routed_experts, config.num_experts_per_tok)
    frequencies = built.attention.frequencies
    if layer in config.engram_layer_ids:
        built.engram = Engram(weights.under("engram"), config, layer, token_map)
    if layer in config.kv_source_layer_ids:
        built.compressor = Compressor(weights.under("attn"), config, ratio, frequencies)
    if layer in config.index_source_layer_ids:
        built.indexer = Indexer(weights.under("attn.indexer"), config, layer, frequencies)
    return built
