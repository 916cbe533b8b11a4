"""Checkpoint layout: name, dtype and shape of every text and draft tensor a config implies."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from dsv41c.compiler.config import ModelConfig

BLOCK = 32  # FP8 weights: one scale for 32 x 32 values; FP4 weights and Engram rows: one for 1 x 32

# safetensors dtype -> bytes per element
DTYPE_BYTES = {"BF16": 2, "F32": 4, "F8_E4M3": 1, "F8_E8M0": 1, "I8": 1, "U8": 1}

DRAFT_PREFIX = "mtp."
# Read by the vision tower only; known, but no part of the text census.
VISION_PREFIXES = ("vision.", "aligner.")


@dataclass(frozen=True)
class TensorSpec:
    """`role` says what the numbers mean, which decides how random ones are drawn."""

    dtype: str
    shape: tuple[int, ...]
    role: str

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor's data."""
        return math.prod(self.shape) * DTYPE_BYTES[self.dtype]


Entry = tuple[str, TensorSpec]


def expected_tensors(config: ModelConfig) -> dict[str, TensorSpec]:
    """Every tensor of the text model and its draft layers, in a fixed order."""
    c = config
    tensors = dict([_bf16("embed.weight", "embedding", c.vocab_size, c.hidden_size)])
    for layer in range(c.num_hidden_layers):
        prefix = f"layers.{layer}."
        tensors.update(_block(c, prefix, c.n_routed_experts))
        tensors.update(_compressed_attention(c, prefix, layer))
        if layer in c.engram_layer_ids:
            tensors.update(_engram(c, prefix, c.engram_num_embeddings[c.engram_layer_ids.index(layer)]))
    tensors.update(
        [_norm("norm", c.hidden_size), _bf16("head.weight", "matrix", c.vocab_size, c.hidden_size)]
    )
    for marker in ("image_start", "image_end", "image_newline"):
        tensors.update([_bf16(marker, "embedding", c.hidden_size)])
    tensors.update(_draft(c))
    return tensors


def _block(c: ModelConfig, prefix: str, experts: int) -> Iterator[Entry]:
    """What a main layer and a draft layer have in common."""
    yield _norm(prefix + "attn_norm", c.hidden_size)
    yield _norm(prefix + "ffn_norm", c.hidden_size)
    yield from _attention(c, prefix + "attn.")
    for site in ("attn", "ffn"):
        channels = c.hc_mult * (2 + c.hc_mult)
        yield prefix + f"hc_{site}_fn", TensorSpec("F32", (channels, c.hc_mult * c.hidden_size), "hc_fn")
        yield prefix + f"hc_{site}_base", TensorSpec("F32", (channels,), "hc_base")
        yield prefix + f"hc_{site}_scale", TensorSpec("F32", (3,), "hc_scale")
    yield from _experts(c, prefix + "ffn.", experts)


def _attention(c: ModelConfig, prefix: str) -> Iterator[Entry]:
    width = c.num_attention_heads * c.head_dim
    yield from _fp8(prefix + "wq_a", c.q_lora_rank, c.hidden_size)
    yield _norm(prefix + "q_norm", c.q_lora_rank)
    yield from _fp8(prefix + "wq_b", width, c.q_lora_rank)
    yield from _fp8(prefix + "wkv", c.head_dim, c.hidden_size)
    yield _norm(prefix + "kv_norm", c.head_dim)
    yield prefix + "attn_sink", TensorSpec("F32", (c.num_attention_heads,), "sink")
    yield from _fp8(prefix + "wo_a", c.o_groups * c.o_lora_rank, width // c.o_groups)
    yield from _fp8(prefix + "wo_b", c.hidden_size, c.o_groups * c.o_lora_rank)


def _experts(c: ModelConfig, prefix: str, experts: int) -> Iterator[Entry]:
    inner, hidden = c.moe_intermediate_size, c.hidden_size
    yield _bf16(prefix + "gate.weight", "matrix", experts, hidden)
    for name in ("bias", "bias_vl"):
        yield prefix + f"gate.{name}", TensorSpec("F32", (experts,), "gate_bias")
    shapes = {"w1": (inner, hidden), "w3": (inner, hidden), "w2": (hidden, inner)}
    for name, shape in shapes.items():
        yield from _fp8(prefix + f"shared_experts.{name}", *shape)
    for expert in range(experts):
        for name, shape in shapes.items():
            yield from _fp4(prefix + f"experts.{expert}.{name}", *shape)


def _compressed_attention(c: ModelConfig, prefix: str, layer: int) -> Iterator[Entry]:
    """Compressor and index keys of a kv source, index queries of an index source."""
    attention = prefix + "attn."
    if layer in c.kv_source_layer_ids:
        names = ("wkv", "wgate") if c.ratio(layer) > 1 else ("wkv",)
        for name in names:
            yield _bf16(attention + f"compressor.{name}.weight", "matrix", c.head_dim, c.hidden_size)
        yield _norm(attention + "compressor.norm", c.head_dim)
        yield _bf16(attention + "indexer.wk.weight", "matrix", c.index_head_dim, c.head_dim)
        yield _norm(attention + "indexer.k_norm", c.index_head_dim)
    if layer in c.index_source_layer_ids:
        yield from _fp8(attention + "indexer.wq_b", c.index_n_heads * c.index_head_dim, c.q_lora_rank)
        yield _bf16(attention + "indexer.weights_proj.weight", "matrix", c.index_n_heads, c.hidden_size)


def _engram(c: ModelConfig, prefix: str, rows: int) -> Iterator[Entry]:
    engram = prefix + "engram."
    values = (c.engram_max_ngram_size - 1) * c.engram_n_heads * c.engram_head_dim
    yield from _fp8(engram + "wkv", c.hidden_size * (c.hc_mult + 1), values)
    for name in ("q_weight", "k_weight"):
        yield _bf16(engram + name, "norm", c.hc_mult, c.hidden_size)
    yield engram + "embed.weight", TensorSpec("F8_E4M3", (rows, c.engram_head_dim), "fp8_rows")
    scales = (rows, c.engram_head_dim // BLOCK)
    yield engram + "embed.scale", TensorSpec("F8_E8M0", scales, "fp8_rows_scale")


def _draft(c: ModelConfig) -> Iterator[Entry]:
    hidden, last = c.hidden_size, c.num_nextn_predict_layers - 1
    yield from _fp8(DRAFT_PREFIX + "0.main_proj", hidden, len(c.dspark_target_layer_ids) * hidden)
    yield _norm(DRAFT_PREFIX + "0.main_norm", hidden)
    for layer in range(c.num_nextn_predict_layers):
        yield from _block(c, f"{DRAFT_PREFIX}{layer}.", c.dspark_n_routed_experts)
    prefix = f"{DRAFT_PREFIX}{last}."
    yield _norm(prefix + "norm", hidden)
    for name, role in (("embed", "embedding"), ("head", "matrix")):
        yield _bf16(prefix + f"markov_head.{name}.weight", role, c.vocab_size, c.dspark_markov_rank)
    yield _bf16(prefix + "confidence_head.proj.weight", "matrix", 1, hidden + c.dspark_markov_rank)


def _bf16(name: str, role: str, *shape: int) -> Entry:
    return name, TensorSpec("BF16", shape, role)


def _norm(name: str, width: int) -> Entry:
    return _bf16(name + ".weight", "norm", width)


def _fp8(name: str, rows: int, columns: int) -> Iterator[Entry]:
    blocks = (math.ceil(rows / BLOCK), math.ceil(columns / BLOCK))
    yield name + ".weight", TensorSpec("F8_E4M3", (rows, columns), "fp8")
    yield name + ".scale", TensorSpec("F8_E8M0", blocks, "fp8_scale")


def _fp4(name: str, rows: int, columns: int) -> Iterator[Entry]:
    """Two e2m1 values a byte, the even column in the low nibble."""
    yield name + ".weight", TensorSpec("I8", (rows, columns // 2), "fp4")
    yield name + ".scale", TensorSpec("F8_E8M0", (rows, columns // BLOCK), "fp4_scale")
