"""The published DeepSeek-V4.1-Flash, and `small`: its kernel shapes on few layers, experts and token ids."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dsv41c.compiler.config import ModelConfig
from dsv41c.compiler.config_derived import engram_primes, table_rows

# What config.json of the published model holds beside the text side.
FLASH_VISION_CONFIG: dict[str, Any] = {
    "image_token_id": 129264,
    "vision_config": {
        "num_hidden_layers": 32,
        "hidden_size": 1024,
        "num_attention_heads": 16,
        "intermediate_size": 2816,
        "patch_size": 14,
        "rope_theta": 10000.0,
    },
}


def flash() -> ModelConfig:
    """The model of the published checkpoint: 40 layers, 3 draft layers, 510 GB."""
    return ModelConfig(
        vocab_size=129280,
        hidden_size=5120,
        num_hidden_layers=40,
        num_attention_heads=64,
        head_dim=512,
        qk_rope_head_dim=64,
        q_lora_rank=1280,
        o_lora_rank=1024,
        o_groups=8,
        sliding_window=128,
        swiglu_limit=10.0,
        rms_norm_eps=1e-20,
        n_routed_experts=384,
        n_shared_experts=1,
        num_experts_per_tok=6,
        moe_intermediate_size=2304,
        routed_scaling_factor=1.5,
        compress_ratios=(0,) * 2 + (2,) * 18 + (1,) * 20 + (0,) * 3,
        kv_source_layer_ids=(2, 8, 14, 20),
        index_source_layer_ids=(2, 8, 14, 20, 24, 28, 32, 36),
        index_n_heads=32,
        index_head_dim=128,
        index_topk=512,
        candidate_source_layer_id=20,
        candidate_topk_blocks=2048,
        candidate_block_size=8,
        rope_theta=10000.0,
        compress_rope_theta=160000.0,
        rope_factor=16.0,
        rope_beta_fast=32.0,
        rope_beta_slow=1.0,
        rope_original_max_position_embeddings=65536,
        max_position_embeddings=1048576,
        hc_mult=4,
        hc_sinkhorn_iters=20,
        hc_eps=1e-6,
        engram_layer_ids=(1, 14),
        engram_num_embeddings=(384_006_168, 384_016_682),
        engram_max_ngram_size=4,
        engram_n_heads=8,
        engram_head_dim=256,
        engram_vocab_size=16_000_000,
        engram_compressed_vocab_size=99_092,
        engram_pad_token_id=2,
        num_nextn_predict_layers=3,
        dspark_block_size=5,
        dspark_noise_token_id=128799,
        dspark_target_layer_ids=(37, 38, 39),
        dspark_markov_rank=256,
        dspark_n_routed_experts=128,
        dspark_num_experts_per_tok=3,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=2,
    )


def small() -> ModelConfig:
    """Head, window, page and group sizes of the published model with 0.6 billion parameters.

    It has 4,096 token ids and no tokenizer: the vocabulary changes no kernel but the last matrix product.
    """
    engram_layers, engram_vocab = (1, 4), 5000
    return replace(
        flash(),
        vocab_size=4096,
        hidden_size=1024,
        num_hidden_layers=10,
        num_attention_heads=16,
        q_lora_rank=256,
        o_lora_rank=256,
        o_groups=4,
        n_routed_experts=32,
        num_experts_per_tok=4,
        moe_intermediate_size=512,
        compress_ratios=(0,) * 2 + (2,) * 4 + (1,) * 4 + (0,) * 2,
        kv_source_layer_ids=(2, 4, 6),
        index_source_layer_ids=(2, 4, 6, 8),
        index_n_heads=8,
        index_topk=128,
        candidate_source_layer_id=6,
        candidate_topk_blocks=64,
        engram_layer_ids=engram_layers,
        engram_num_embeddings=table_rows(engram_primes(len(engram_layers), 4, 8, engram_vocab)),
        engram_vocab_size=engram_vocab,
        engram_compressed_vocab_size=3000,
        num_nextn_predict_layers=2,
        dspark_noise_token_id=4095,
        dspark_target_layer_ids=(8, 9),
        dspark_n_routed_experts=16,
        dspark_num_experts_per_tok=2,
    )
