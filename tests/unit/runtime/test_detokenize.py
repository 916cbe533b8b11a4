"""Text of an answer that comes in parts: the parts make the text, whatever way the tokens are divided."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from dsv41c.runtime.library import installed_file

CONTEXT = 16  # as the backend gives it


@pytest.fixture(scope="module")
def detokenize() -> Any:
    """The model's module; only a server has what it talks to."""
    spec = importlib.util.spec_from_file_location("detokenize", installed_file("triton/detokenize.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["triton_python_backend_utils"] = ModuleType("triton_python_backend_utils")
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules["triton_python_backend_utils"]
    return module


@pytest.fixture(scope="module")
def tokenizer(make_checkpoint: Callable[..., Path]) -> Tokenizer:
    return Tokenizer.from_file(str(make_checkpoint("demo", 0) / "tokenizer.json"))


def _parts(detokenize: Any, tokenizer: Tokenizer, skipped: frozenset[int], ids: list[int],
           cuts: list[int]) -> list[str]:
    bounds = [0, *sorted(cut % (len(ids) + 1) for cut in cuts), len(ids)]
    parts = [detokenize.part_of_text(tokenizer, skipped, ids[max(start - CONTEXT, 0):start], ids[start:end], False)
             for start, end in zip(bounds, bounds[1:], strict=False)]
    return [*parts, detokenize.part_of_text(tokenizer, skipped, ids[-CONTEXT:], [], True)]


@given(text=st.text(max_size=40), cuts=st.lists(st.integers(0, 200), max_size=40))
def test_parts_make_the_text(detokenize: Any, tokenizer: Tokenizer, text: str, cuts: list[int]) -> None:
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    whole = tokenizer.decode(ids, skip_special_tokens=False)
    assert "".join(_parts(detokenize, tokenizer, frozenset(), ids, cuts)) == whole


@given(text=st.text(alphabet="aé狐🦊 ", min_size=1, max_size=30))
def test_no_part_has_half_a_character(detokenize: Any, tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    parts = _parts(detokenize, tokenizer, frozenset(), ids, list(range(len(ids))))
    assert not any("\ufffd" in part for part in parts)


def test_skipped_ids_have_no_text(detokenize: Any, tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("one two", add_special_tokens=False).ids
    assert "".join(_parts(detokenize, tokenizer, frozenset({ids[-1]}), ids, [1])) == tokenizer.decode(ids[:-1])
