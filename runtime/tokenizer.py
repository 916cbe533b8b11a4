"""Tokenizer: text to ids and back with the tokenizer.json that the artifact carries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import tokenizers

from dsv41c.runtime.plan.errors import Dsv41cError

NAME = "tokenizer.json"


@dataclass(frozen=True)
class Tokenizer:
    """Plain text only: no special tokens are added, and none are written."""

    model: tokenizers.Tokenizer
    skipped: frozenset[int]

    @classmethod
    def read(cls, artifact: Path, eos_ids: Iterable[int]) -> Tokenizer | None:
        """None when the artifact has no tokenizer."""
        path = artifact / NAME
        if not path.is_file():
            return None
        try:
            model = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises bare Exception
            raise Dsv41cError("DSV41C-E0703", f"bad artifact file {path}", found=str(error),
                              needed="a file of the tokenizers library", do="compile the artifact again") from error
        special = (i for i, token in model.get_added_tokens_decoder().items() if token.special)
        return cls(model, frozenset(special) | frozenset(eos_ids))

    def encode(self, text: str) -> list[int]:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise Dsv41cError("DSV41C-E0902", "prompt text", found=str(error), needed="valid UTF-8",
                              do="pass the text in UTF-8, or use --prompt-ids") from error
        return list(self.model.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        plain = [i for i in ids if i not in self.skipped]
        return str(self.model.decode(plain, skip_special_tokens=False))


def require(tokenizer: Tokenizer | None, artifact: Path) -> Tokenizer:
    """E0902 when text is given to an artifact that cannot read it."""
    if tokenizer is None:
        raise Dsv41cError("DSV41C-E0902", "prompt text", where=str(artifact), needed="token ids",
                          found="an artifact without tokenizer.json", do="pass --prompt-ids 1,2,3")
    return tokenizer
