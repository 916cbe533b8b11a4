"""Writes a made-up checkpoint: a Hugging Face directory in the published layout with drawn weights."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsv41c.compiler.checkpoint.census import INDEX_FILE
from dsv41c.compiler.checkpoint.counter import (
    check_recitable,
    counter_tensors,
    counting_successor,
    reciting_successor,
)
from dsv41c.compiler.checkpoint.demo_tokenizer import DemoTokenizer
from dsv41c.compiler.checkpoint.draw import draw_tensor
from dsv41c.compiler.checkpoint.layout import TensorSpec, expected_tensors
from dsv41c.compiler.checkpoint.presets import PRESETS
from dsv41c.compiler.checkpoint.shards import plan_shards, write_shard
from dsv41c.compiler.checkpoint.token_map import TOKEN_MAP_FILE, TOKENIZER_FILE, build_token_map
from dsv41c.compiler.config import ModelConfig
from dsv41c.compiler.output_directory import new_directory
from dsv41c.runtime.plan.errors import Dsv41cError


@dataclass(frozen=True)
class MadeCheckpoint:
    """What was written."""

    path: Path
    tensors: int
    data_bytes: int
    shards: tuple[str, ...]


def make_checkpoint(
    preset: str, output: Path | str, *, seed: int = 0, counter: int | None = None, recite: str | None = None
) -> MadeCheckpoint:
    """Writes preset `tiny` or `demo`; see counter.py for what `counter` (1 or 2) and `recite` put in.

    Nothing appears under `output` until everything is on disk.
    """
    output = Path(output)
    config = PRESETS[preset]()
    tokenizer = DemoTokenizer.find() if preset == "demo" else None
    replaced: dict[str, NDArray[np.uint16]] = {}
    if recite is not None:
        successor = _reciting(config, tokenizer, recite)
        replaced = counter_tensors(config, seed, successor, counter or 1)
    elif counter is not None:
        replaced = counter_tensors(config, seed, counting_successor(config.vocab_size), counter)
    with new_directory(output, "DSV41C-E0106") as folder:
        _write_configs(folder, config)
        _write_tokenizer(folder, config, tokenizer)
        tensors = expected_tensors(config)
        shards = _write_weights(folder, tensors, seed, replaced)
    return MadeCheckpoint(output, len(tensors), sum(spec.nbytes for spec in tensors.values()), shards)


def _reciting(config: ModelConfig, tokenizer: DemoTokenizer | None, text: str) -> NDArray[np.int64]:
    if tokenizer is None:
        raise Dsv41cError(
            "DSV41C-E0107",
            "this config has no tokenizer",
            found=f"a text to recite: {text!r}",
            needed="a config whose token ids stand for text",
            do="use --config demo",
        )
    (newline,) = tokenizer.encode("\n")
    tokens = tokenizer.encode(text)
    check_recitable(text, tokens, tokenizer.pieces(tokens), newline, config.eos_token_id)
    return reciting_successor(config.vocab_size, newline, tokens, config.eos_token_id)


def _write_configs(folder: Path, config: ModelConfig) -> None:
    _write_json(folder / "config.json", config.to_json(), indent=2)
    ids = {key: getattr(config, key) for key in ("bos_token_id", "eos_token_id", "pad_token_id")}
    _write_json(folder / "generation_config.json", ids, indent=2)


def _write_tokenizer(folder: Path, config: ModelConfig, tokenizer: DemoTokenizer | None) -> None:
    if tokenizer is None:
        ids = [token % config.engram_compressed_vocab_size for token in range(config.vocab_size)]
    else:
        _write_json(folder / TOKENIZER_FILE, tokenizer.tokenizer_json)
        _write_json(folder / "tokenizer_config.json", tokenizer.config_json(), indent=2)
        ids = build_token_map(tokenizer.tokenizer_json)
    _write_json(folder / TOKEN_MAP_FILE, ids)


def _write_weights(
    folder: Path, tensors: dict[str, TensorSpec], seed: int, replaced: dict[str, NDArray[np.uint16]]
) -> tuple[str, ...]:
    plan = plan_shards(tensors)
    for file, names in plan.items():
        drawn: dict[str, NDArray[Any]] = {
            name: replaced[name] if name in replaced else draw_tensor(seed, name, tensors[name])
            for name in names
        }
        write_shard(folder / file, drawn, tensors)
    index = {
        "metadata": {"total_size": sum(spec.nbytes for spec in tensors.values())},
        "weight_map": {name: file for file, names in plan.items() for name in names},
    }
    _write_json(folder / INDEX_FILE, index, indent=2)
    return tuple(plan)


def _write_json(path: Path, value: object, indent: int | None = None) -> None:
    path.write_text(
        json.dumps(value, ensure_ascii=False, indent=indent) + "\n", encoding="utf-8", newline="\n"
    )
