"""The models `dsv41c checkpoint make` can write: `tiny` for tests, `demo` with the real vocabulary, and two more."""

from __future__ import annotations

from dataclasses import replace

from dsv41c.compiler.checkpoint.published import flash, small
from dsv41c.compiler.config import ModelConfig
from dsv41c.compiler.config_derived import engram_primes, table_rows

# tiny and demo share one layer pattern, in which every role of a layer occurs:
# 0 window only; 1 kv and index source with Engram; 2 reuse; 3 second ratio-2 source with Engram;
# 4 decoder start and candidate source; 5 reuse; 6 own index query and draft tap; 7 reuse and tap.
_ENGRAM_LAYERS = (1, 3)


def tiny() -> ModelConfig:
    """96 token ids, 8 layers: every branch of the model within a prompt of 24 tokens."""
    return ModelConfig(
        vocab_size=96,
        hidden_size=64,
        num_hidden_layers=8,
        num_attention_heads=4,
        head_dim=32,
        qk_rope_head_dim=16,
        q_lora_rank=32,
        o_lora_rank=32,
        o_groups=2,
        sliding_window=8,
        swiglu_limit=10.0,
        rms_norm_eps=1e-20,
        n_routed_experts=8,
        n_shared_experts=1,
        num_experts_per_tok=2,
        moe_intermediate_size=32,
        routed_scaling_factor=1.5,
        compress_ratios=(0, 2, 2, 2, 1, 1, 1, 1, 0, 0),
        kv_source_layer_ids=(1, 3, 4),
        index_source_layer_ids=(1, 3, 4, 6),
        index_n_heads=2,
        index_head_dim=32,
        index_topk=4,
        candidate_source_layer_id=4,
        candidate_topk_blocks=2,
        candidate_block_size=4,
        rope_theta=10000.0,
        compress_rope_theta=160000.0,
        rope_factor=16.0,
        rope_beta_fast=32.0,
        rope_beta_slow=1.0,
        rope_original_max_position_embeddings=64,
        max_position_embeddings=4096,
        hc_mult=4,
        hc_sinkhorn_iters=20,
        hc_eps=1e-6,
        engram_layer_ids=_ENGRAM_LAYERS,
        engram_num_embeddings=table_rows(engram_primes(len(_ENGRAM_LAYERS), 3, 2, 50)),
        engram_max_ngram_size=3,
        engram_n_heads=2,
        engram_head_dim=32,
        engram_vocab_size=50,
        engram_compressed_vocab_size=40,
        engram_pad_token_id=2,
        num_nextn_predict_layers=2,
        dspark_block_size=3,
        dspark_noise_token_id=95,
        dspark_target_layer_ids=(6, 7),
        dspark_markov_rank=8,
        dspark_n_routed_experts=4,
        dspark_num_experts_per_tok=2,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=2,
    )


def demo() -> ModelConfig:
    """The real vocabulary and tokenizer on dimensions that two cores run in milliseconds."""
    return replace(
        tiny(),
        vocab_size=129280,
        hidden_size=128,
        head_dim=64,
        qk_rope_head_dim=32,
        q_lora_rank=64,
        sliding_window=32,
        n_routed_experts=16,
        moe_intermediate_size=64,
        index_head_dim=64,
        index_topk=16,
        candidate_topk_blocks=8,
        rope_original_max_position_embeddings=4096,
        max_position_embeddings=65536,
        engram_num_embeddings=table_rows(engram_primes(len(_ENGRAM_LAYERS), 3, 2, 2000)),
        engram_vocab_size=2000,
        engram_compressed_vocab_size=99092,
        dspark_noise_token_id=128799,
        dspark_markov_rank=64,
    )


PRESETS = {"tiny": tiny, "demo": demo, "small": small, "flash": flash}
