"""The architecture numbers of a checkpoint, read from its config.json, and what follows from them."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class OracleConfig:
    """Fields of `text_config` under their published names; the properties below are derived."""

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    head_dim: int
    qk_rope_head_dim: int
    o_groups: int
    sliding_window: int
    swiglu_limit: float
    rms_norm_eps: float
    n_routed_experts: int
    num_experts_per_tok: int
    routed_scaling_factor: float
    compress_ratios: list[int]
    kv_source_layer_ids: list[int]
    index_source_layer_ids: list[int]
    index_n_heads: int
    index_head_dim: int
    index_topk: int
    candidate_source_layer_id: int
    candidate_topk_blocks: int
    candidate_block_size: int
    rope_theta: float
    compress_rope_theta: float
    rope_scaling: dict[str, Any]
    hc_mult: int
    hc_sinkhorn_iters: int
    hc_eps: float
    engram_layer_ids: list[int]
    engram_max_ngram_size: int
    engram_n_heads: int
    engram_head_dim: int
    engram_vocab_size: int
    engram_compressed_vocab_size: int
    engram_pad_token_id: int
    num_nextn_predict_layers: int
    dspark_block_size: int
    dspark_noise_token_id: int
    dspark_target_layer_ids: list[int]
    dspark_n_routed_experts: int
    dspark_num_experts_per_tok: int

    @property
    def decoder_start(self) -> int:
        """First ratio-1 layer: everything before it is the encoder."""
        return self.compress_ratios.index(1)

    def kv_source(self, layer: int) -> int:
        """The layer whose compressed entries `layer` reads (ratio > 0 only)."""
        return max(s for s in self.kv_source_layer_ids if s <= layer)


def read_config(directory: Path, overrides: dict[str, Any] | None = None) -> OracleConfig:
    """config.json -> OracleConfig; `overrides` replace fields (for what-if equivalences)."""
    text = json.loads((directory / "config.json").read_text())["text_config"]
    config = OracleConfig(**{field.name: text[field.name] for field in fields(OracleConfig)})
    return replace(config, **(overrides or {}))


def rotary_frequencies(config: OracleConfig, compressed: bool) -> np.ndarray:
    """Angle per position of each pair [rope/2]; layers with compressed entries use YaRN interpolation."""
    width = config.qk_rope_head_dim
    theta = config.compress_rope_theta if compressed else config.rope_theta
    frequencies = 1 / theta ** (np.arange(0, width, 2) / width)
    if not compressed:
        return frequencies
    scaling = config.rope_scaling
    original = scaling["original_max_position_embeddings"]

    def pair_turning(turns: float) -> float:
        """The (fractional) pair index that makes `turns` turns over the original context."""
        return width * np.log(original / (2 * np.pi * turns)) / (2 * np.log(theta))

    low = max(int(np.floor(pair_turning(scaling["beta_fast"]))), 0)
    high: float = min(int(np.ceil(pair_turning(scaling["beta_slow"]))), width - 1)
    if low == high:
        high += 0.001
    interpolated = np.clip((np.arange(width // 2) - low) / (high - low), 0, 1)
    return frequencies / scaling["factor"] * interpolated + frequencies * (1 - interpolated)


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % divisor for divisor in range(2, int(number**0.5) + 1))


def engram_moduli(config: OracleConfig) -> list[np.ndarray]:
    """Per Engram layer int64 [n-1, heads]: primes from engram_vocab_size up, none used twice anywhere."""
    used: set[int] = set()
    layers = []
    for _ in config.engram_layer_ids:
        rows = []
        for _ in range(config.engram_max_ngram_size - 1):
            row: list[int] = []
            candidate = config.engram_vocab_size
            while len(row) < config.engram_n_heads:
                if candidate not in used and _is_prime(candidate):
                    used.add(candidate)
                    row.append(candidate)
                candidate += 1
            rows.append(row)
        layers.append(np.array(rows, dtype=np.int64))
    return layers


def engram_multipliers(config: OracleConfig, layer: int) -> np.ndarray:
    """Odd int64 multipliers [n] of one layer, small enough that id * multiplier stays below 2**63."""
    bound = max(1, ((2**63 - 1) // config.engram_compressed_vocab_size) // 2)
    draws = np.random.default_rng(10007 * layer).integers(
        0, bound, size=config.engram_max_ngram_size, dtype=np.int64
    )
    return draws * 2 + 1


def engram_token_map(directory: Path) -> np.ndarray:
    """Raw token id -> compressed id, int64 [vocab]."""
    return np.array(json.loads((directory / "engram_token_map.json").read_text()), dtype=np.int64)
