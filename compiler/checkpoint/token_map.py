"""Engram token map: token id -> id of its normalised text, built from a tokenizer or loaded as data."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsv41c.compiler.config import ModelConfig, read_json
from dsv41c.runtime.plan.errors import Dsv41cError

TOKEN_MAP_FILE = "engram_token_map.json"
TOKENIZER_FILE = "tokenizer.json"
_SPACES = re.compile(r"[ \t\r\n]+")
_LONE_SPACE = "\ue000"


def build_token_map(tokenizer: Mapping[str, Any]) -> list[int]:
    """The map of a parsed tokenizer.json: distinct keys numbered in the order of token ids."""
    numbers: dict[str, int] = {}
    result = []
    for raw, text in decoded_tokens(tokenizer):
        # A token that holds part of a character has no text of its own; its vocabulary string stands for it.
        key = raw if "\ufffd" in text else normalise(text)
        result.append(numbers.setdefault(key, len(numbers)))
    return result


def normalise(text: str) -> str:
    """Folds case, accents, compatibility forms and runs of spaces; what folds to nothing stays as it is."""
    folded = unicodedata.normalize("NFD", unicodedata.normalize("NFKC", text))
    folded = "".join(char for char in folded if not unicodedata.category(char).startswith("M")).lower()
    folded = _SPACES.sub(" ", folded)
    if folded == " ":
        folded = _LONE_SPACE
    return folded.strip().replace(_LONE_SPACE, " ") or text


def load_token_map(config: ModelConfig, directory: Path | str) -> NDArray[np.int32]:
    """The checkpoint's own `engram_token_map.json`, else the rule applied to its tokenizer.json."""
    path = Path(directory) / TOKEN_MAP_FILE
    if path.exists():
        values = read_json(path)
    else:
        path = Path(directory) / TOKENIZER_FILE
        values = build_token_map(read_json(path))
    _check(config, values, path)
    return np.array(values, dtype=np.int32)


def _check(config: ModelConfig, values: Any, path: Path) -> None:
    size, bound = config.vocab_size, config.engram_compressed_vocab_size
    is_list = isinstance(values, list) and all(type(value) is int for value in values)
    if is_list and len(values) == size and min(values) >= 0 and max(values) < bound:
        return
    found = f"{len(values)} ids in [{min(values)}, {max(values)}]" if is_list and values else "no list of ids"
    raise Dsv41cError(
        "DSV41C-E0104",
        "unsupported Engram token map",
        where=str(path),
        found=found,
        needed=f"{size} ids in [0, {bound}): vocab_size and engram_compressed_vocab_size of config.json",
        do="use the tokenizer published with the checkpoint",
    )


def decoded_tokens(tokenizer: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(vocabulary string, decoded text) of every token in id order."""
    added = {entry["id"]: entry["content"] for entry in tokenizer["added_tokens"]}
    vocabulary = {index: piece for piece, index in tokenizer["model"]["vocab"].items()}
    alphabet = _byte_alphabet()
    for index in range(max([*added, *vocabulary]) + 1):
        if index in added:
            yield added[index], added[index]
        else:
            piece = vocabulary[index]
            yield piece, bytes(map(alphabet.__getitem__, piece)).decode("utf-8", "replace")


def _byte_alphabet() -> dict[str, int]:
    """Character -> byte of byte-level BPE: printable Latin-1 is itself, the rest follows from U+0100."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    result = {chr(byte): byte for byte in printable}
    result.update((chr(0x100 + index), byte) for index, byte in enumerate(others))
    return result
