"""Writes a made-up checkpoint: a Hugging Face directory in the published layout with drawn weights."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
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
from dsv41c.compiler.checkpoint.draw import draw_parts
from dsv41c.compiler.checkpoint.layout import expected_tensors
from dsv41c.compiler.checkpoint.presets import PRESETS
from dsv41c.compiler.checkpoint.published import FLASH_VISION_CONFIG
from dsv41c.compiler.checkpoint.shards import plan_shards, write_headers, write_shard
from dsv41c.compiler.checkpoint.token_map import TOKEN_MAP_FILE, TOKENIZER_FILE, build_token_map
from dsv41c.compiler.checkpoint.vision import vision_tensors
from dsv41c.compiler.config import ModelConfig
from dsv41c.compiler.output_directory import new_directory, refuse_existing
from dsv41c.runtime.plan.errors import Dsv41cError


@dataclass(frozen=True)
class MadeCheckpoint:
    """What was written."""

    path: Path
    tensors: int
    data_bytes: int
    shards: tuple[str, ...]


@dataclass(frozen=True)
class _Preset:
    """How a preset is written; the numbers of its model are in PRESETS."""

    tokenizer: bool = False
    vision: bool = False
    weight_shards: int = 2
    split_tables: bool = False


_FORMS = {"tiny": _Preset(), "demo": _Preset(tokenizer=True), "small": _Preset(),
          "flash": _Preset(tokenizer=True, vision=True, weight_shards=46, split_tables=True)}  # fmt: skip


def make_checkpoint(
    preset: str,
    output: Path | str,
    *,
    seed: int = 0,
    counter: int | None = None,
    recite: str | None = None,
    headers_only: bool = False,
    max_position_embeddings: int | None = None,
) -> MadeCheckpoint:
    """Writes a preset; see counter.py for what `counter` (1 or 2) and `recite` put in. With `headers_only` the
    shards have headers and no data: enough to inspect and to plan. `max_position_embeddings` replaces the preset's.

    Nothing appears under `output` until everything is on disk.
    """
    output, form = Path(output), _FORMS[preset]
    refuse_existing(output, "DSV41C-E0106")
    config = PRESETS[preset]()
    if max_position_embeddings is not None:
        config = replace(config, max_position_embeddings=max_position_embeddings)
    tensors = expected_tensors(config) | (vision_tensors(config.hidden_size) if form.vision else {})
    total = sum(spec.nbytes for spec in tensors.values())
    if not headers_only:
        _check_space(output, total)
    tokenizer = DemoTokenizer.find() if form.tokenizer else None
    replaced = _replaced(config, tokenizer, seed, counter, recite)
    plan = plan_shards(tensors, form.weight_shards, split_tables=form.split_tables)

    def parts(name: str) -> Iterable[NDArray[Any]]:
        return [replaced[name]] if name in replaced else draw_parts(seed, name, tensors[name])

    with new_directory(output, "DSV41C-E0106") as folder:
        _write_configs(folder, config, FLASH_VISION_CONFIG if form.vision else {})
        _write_tokenizer(folder, config, tokenizer)
        for file, names in plan.items():
            if headers_only:
                write_headers(folder / file, names, tensors)
            else:
                write_shard(folder / file, names, tensors, parts)
        weight_map = {name: file for file, names in plan.items() for name in names}
        _write_json(folder / INDEX_FILE, {"metadata": {"total_size": total}, "weight_map": weight_map}, indent=2)
    return MadeCheckpoint(output, len(tensors), total, tuple(plan))


def _check_space(output: Path, needed: int) -> None:
    """Only the published size can fail here on a usual disk; a late failure would cost an hour."""
    existing = next(folder for folder in output.absolute().parents if folder.is_dir())
    free = shutil.disk_usage(existing).free
    if free < needed:
        raise Dsv41cError(
            "DSV41C-E0606",
            "disk too small for the checkpoint",
            where=str(existing),
            found=f"{free:,} bytes free",
            needed=f"{needed:,} bytes",
            do="free space, choose another -o, or write it with --headers-only",
        )


def _replaced(
    config: ModelConfig, tokenizer: DemoTokenizer | None, seed: int, counter: int | None, recite: str | None
) -> Mapping[str, NDArray[np.uint16]]:
    if recite is not None:
        return counter_tensors(config, seed, _reciting(config, tokenizer, recite), counter or 1)
    if counter is not None:
        return counter_tensors(config, seed, counting_successor(config.vocab_size), counter)
    return {}


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


def _write_configs(folder: Path, config: ModelConfig, vision: Mapping[str, Any]) -> None:
    _write_json(folder / "config.json", {**config.to_json(), **vision}, indent=2)
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


def _write_json(path: Path, value: object, indent: int | None = None) -> None:
    path.write_text(
        json.dumps(value, ensure_ascii=False, indent=indent) + "\n", encoding="utf-8", newline="\n"
    )
