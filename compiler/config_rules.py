"""Rules between config values: what the layer pattern and the dimensions must satisfy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from dsv41c.compiler.config_derived import table_rows
from dsv41c.compiler.config_json import refuse

if TYPE_CHECKING:
    from dsv41c.compiler.config import ModelConfig

# (key, holds, needed)
Rule = tuple[str, bool, str]

_MAY_BE_ZERO = {"candidate_source_layer_id", "engram_pad_token_id", "dspark_noise_token_id",
                "bos_token_id", "eos_token_id", "pad_token_id", "rms_norm_eps", "hc_eps"}  # fmt: skip
# FP8 blocks are 32 x 32 and activation groups 32 wide; a ragged last group has no defined meaning.
_MULTIPLES_OF_32 = ("hidden_size", "head_dim", "q_lora_rank", "o_lora_rank", "moe_intermediate_size",
                    "index_head_dim", "engram_head_dim")  # fmt: skip
_TOKEN_IDS = ("bos_token_id", "eos_token_id", "pad_token_id", "engram_pad_token_id", "dspark_noise_token_id")


def check_consistency(config: ModelConfig, where: str | None) -> None:
    """Refuses the first rule that does not hold; later rule groups may rely on earlier ones."""
    for group in (_size_rules, _ratio_rules, _source_rules, _engram_rules):
        for key, holds, needed in group(config):
            if not holds:
                refuse(key, getattr(config, key), needed, where)


def _size_rules(c: ModelConfig) -> Iterator[Rule]:
    for key, value in vars(c).items():
        if isinstance(value, int | float) and key not in _MAY_BE_ZERO:
            yield key, value > 0, "a value above 0"
    for key in _MULTIPLES_OF_32:
        yield key, getattr(c, key) % 32 == 0, "a multiple of 32"
    for key in _TOKEN_IDS:
        yield key, getattr(c, key) < c.vocab_size, f"an id below vocab_size {c.vocab_size}"
    widest = min(c.head_dim, c.index_head_dim)
    rope_fits = c.qk_rope_head_dim % 2 == 0 and c.qk_rope_head_dim <= widest
    yield "qk_rope_head_dim", rope_fits, f"an even number up to {widest}"
    yield "o_groups", c.num_attention_heads % c.o_groups == 0, f"a divisor of {c.num_attention_heads} heads"
    yield "n_shared_experts", c.n_shared_experts == 1, "1"
    yield "num_experts_per_tok", c.num_experts_per_tok <= c.n_routed_experts, f"at most {c.n_routed_experts}"
    draft = c.dspark_n_routed_experts
    yield "dspark_num_experts_per_tok", c.dspark_num_experts_per_tok <= draft, f"at most {draft}"


def _ratio_rules(c: ModelConfig) -> Iterator[Rule]:
    layers, drafts = c.num_hidden_layers, c.num_nextn_predict_layers
    yield "compress_ratios", len(c.compress_ratios) == layers + drafts, f"{layers} + {drafts} entries"
    main = c.compress_ratios[:layers]
    order = sorted(main, key=(0, 2, 1).index) if set(main) <= {0, 1, 2} else None
    yield "compress_ratios", list(main) == order, "main layers of ratio 0, then 2, then 1"
    yield "compress_ratios", 1 in main, "at least one layer of ratio 1 (the decoder)"
    yield "compress_ratios", not any(c.compress_ratios[layers:]), "ratio 0 on draft layers"


def _source_rules(c: ModelConfig) -> Iterator[Rule]:
    layers, start = c.num_hidden_layers, c.decoder_start
    first = next(layer for layer in range(layers) if c.ratio(layer))
    kv, index = c.kv_source_layer_ids, c.index_source_layer_ids
    yield "kv_source_layer_ids", _ascending(kv, first, layers), f"ascending ids in [{first}, {layers})"
    yield "kv_source_layer_ids", first in kv, f"the first compressed layer {first}"
    yield "kv_source_layer_ids", kv[-1] == start, f"the decoder start {start} as the last source"
    yield "index_source_layer_ids", _ascending(index, first, layers), f"ascending ids in [{first}, {layers})"
    yield "index_source_layer_ids", set(kv) <= set(index), f"every kv source of {kv}"
    yield "candidate_source_layer_id", c.candidate_source_layer_id == start, f"the decoder start {start}"
    taps = c.dspark_target_layer_ids
    taps_fit = bool(taps) and _ascending(taps, start, layers)
    yield "dspark_target_layer_ids", taps_fit, f"ascending ids in [{start}, {layers})"


def _engram_rules(c: ModelConfig) -> Iterator[Rule]:
    ids, start = c.engram_layer_ids, c.decoder_start
    yield "engram_layer_ids", bool(ids) and _ascending(ids, 0, start), f"ascending ids in [0, {start})"
    yield "engram_max_ngram_size", c.engram_max_ngram_size >= 2, "at least 2"
    fits = c.engram_compressed_vocab_size <= c.vocab_size
    yield "engram_compressed_vocab_size", fits, f"at most vocab_size {c.vocab_size}"
    # Above this, finding the table sizes would take minutes; the published model has 16,000,000.
    yield "engram_vocab_size", c.engram_vocab_size <= 1 << 25, "at most 33554432"
    rows = table_rows(c.engram_primes())
    yield "engram_num_embeddings", c.engram_num_embeddings == rows, f"the sums of the table primes {rows}"


def _ascending(ids: Sequence[int], low: int, high: int) -> bool:
    return all(low <= i < high for i in ids) and all(a < b for a, b in zip(ids, ids[1:], strict=False))
