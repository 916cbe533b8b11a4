"""ModelConfig: the text side of a DeepSeek-V4.1 config.json, validated and frozen."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsv41c.compiler import config_derived as derived
from dsv41c.compiler.config_json import fields_from_json, fields_to_json
from dsv41c.compiler.config_rules import check_consistency
from dsv41c.runtime.plan.errors import Dsv41cError


@dataclass(frozen=True)
class ModelConfig:
    """One model's numbers under the names of config.json; `rope_scaling` is flattened to `rope_*`."""

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    head_dim: int
    qk_rope_head_dim: int
    q_lora_rank: int
    o_lora_rank: int
    o_groups: int
    sliding_window: int
    swiglu_limit: float
    rms_norm_eps: float
    n_routed_experts: int
    n_shared_experts: int
    num_experts_per_tok: int
    moe_intermediate_size: int
    routed_scaling_factor: float
    compress_ratios: tuple[int, ...]  # main layers, then the draft layers
    kv_source_layer_ids: tuple[int, ...]
    index_source_layer_ids: tuple[int, ...]
    index_n_heads: int
    index_head_dim: int
    index_topk: int
    candidate_source_layer_id: int
    candidate_topk_blocks: int
    candidate_block_size: int
    rope_theta: float
    compress_rope_theta: float
    rope_factor: float
    rope_beta_fast: float
    rope_beta_slow: float
    rope_original_max_position_embeddings: int
    max_position_embeddings: int
    hc_mult: int
    hc_sinkhorn_iters: int
    hc_eps: float
    engram_layer_ids: tuple[int, ...]
    engram_num_embeddings: tuple[int, ...]
    engram_max_ngram_size: int
    engram_n_heads: int
    engram_head_dim: int
    engram_vocab_size: int
    engram_compressed_vocab_size: int
    engram_pad_token_id: int
    num_nextn_predict_layers: int
    dspark_block_size: int
    dspark_noise_token_id: int
    dspark_target_layer_ids: tuple[int, ...]
    dspark_markov_rank: int
    dspark_n_routed_experts: int
    dspark_num_experts_per_tok: int
    bos_token_id: int
    eos_token_id: int
    pad_token_id: int

    @classmethod
    def from_json(cls, data: object, where: str | None = None) -> ModelConfig:
        """Reads a parsed config.json; refuses keys and values this compiler does not implement."""
        config = cls(**fields_from_json(cls, data, where))
        check_consistency(config, where)
        return config

    @classmethod
    def load(cls, directory: Path | str) -> ModelConfig:
        """Reads `config.json` of a checkpoint directory."""
        path = Path(directory) / "config.json"
        return cls.from_json(read_json(path), str(path))

    def to_json(self) -> dict[str, Any]:
        """The nested config.json this config came from, with the architecture's fixed keys filled in."""
        return fields_to_json(self)

    @property
    def decoder_start(self) -> int:
        """First layer of ratio 1: from here on every layer reads one compressed stream."""
        return self.compress_ratios.index(1)

    def ratio(self, layer: int) -> int:
        """Compress ratio of a layer; draft layers follow the main ones and have 0."""
        return self.compress_ratios[layer]

    def kv_source(self, layer: int) -> int:
        """The layer whose compressed keys `layer` reads."""
        return self._source(self.kv_source_layer_ids, layer)

    def index_source(self, layer: int) -> int:
        """The layer whose top-k selection `layer` reads."""
        return self._source(self.index_source_layer_ids, layer)

    def _source(self, sources: tuple[int, ...], layer: int) -> int:
        if self.ratio(layer) == 0:
            raise ValueError(f"layer {layer} has compress ratio 0 and reads no compressed keys")
        return max(source for source in sources if source <= layer)

    @cached_property
    def _primes(self) -> derived.Primes:
        return derived.engram_primes(
            len(self.engram_layer_ids),
            self.engram_max_ngram_size,
            self.engram_n_heads,
            self.engram_vocab_size,
        )

    def engram_primes(self) -> derived.Primes:
        """Hash moduli by [Engram layer][n - 2][head]."""
        return self._primes

    def engram_multipliers(self) -> NDArray[np.int64]:
        """Hash multipliers int64 [Engram layers, max n-gram size]."""
        return derived.engram_multipliers(
            self.engram_layer_ids, self.engram_max_ngram_size, self.engram_compressed_vocab_size
        )

    def rotary_frequencies(self, compressed: bool) -> NDArray[np.float64]:
        """Angle per position of each rotary pair; `compressed`: for layers with a compress ratio above 0."""
        if not compressed:
            return derived.plain_frequencies(self.qk_rope_head_dim, self.rope_theta)
        return derived.yarn_frequencies(
            self.qk_rope_head_dim,
            self.compress_rope_theta,
            self.rope_factor,
            self.rope_beta_fast,
            self.rope_beta_slow,
            self.rope_original_max_position_embeddings,
        )


def read_json(path: Path) -> Any:
    """Parses one JSON file of a checkpoint."""
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise Dsv41cError(
            "DSV41C-E0101",
            f"checkpoint file missing: {path.name}",
            where=str(path),
            found="no such file",
            needed="a Hugging Face checkpoint directory",
            do="check the path, or write one with `dsv41c checkpoint make`",
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        raise Dsv41cError(
            "DSV41C-E0109",
            f"{path.name} cannot be read as JSON",
            where=str(path),
            found=str(error),
            needed="a UTF-8 JSON file",
            do="fetch the file again",
        ) from error
