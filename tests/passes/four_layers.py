"""A checkpoint of four layers with every role of a layer but a second source: half the price of `tiny`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest import mock

from dsv41c.compiler.checkpoint import make
from dsv41c.compiler.checkpoint.presets import tiny
from dsv41c.compiler.config import ModelConfig
from dsv41c.compiler.config_derived import engram_primes, table_rows


def four_layers() -> ModelConfig:
    """0 window only; 1 source of ratio 2 with Engram; 2 decoder start, source and candidate source; 3 own index and
    draft tap."""
    return replace(tiny(), num_hidden_layers=4, compress_ratios=(0, 2, 1, 1, 0), kv_source_layer_ids=(1, 2),
                   index_source_layer_ids=(1, 2, 3), candidate_source_layer_id=2, engram_layer_ids=(1,),
                   engram_num_embeddings=table_rows(engram_primes(1, 3, 2, 50)), num_nextn_predict_layers=1,
                   dspark_target_layer_ids=(3,))


def write_four_layers(folder: Path, headers_only: bool = False) -> Path:
    with mock.patch.dict(make.PRESETS, {"tiny": four_layers}):
        return make.make_checkpoint("tiny", folder, headers_only=headers_only).path
