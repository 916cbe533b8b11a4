"""A runtime on random tiny weights with room for 32 requests, and prompts for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dsv41c.runtime.load import Runtime, load

OPTIONS = {"max_model_len": 128, "block_size": 16, "max_num_seqs": 32, "max_num_batched_tokens": 64}


@pytest.fixture(scope="session")
def engine_artifact(compiled_artifact: Callable[..., Path]) -> Path:
    return compiled_artifact("tiny", 0, **OPTIONS)


@pytest.fixture
def runtime(engine_artifact: Path) -> Iterator[Runtime]:
    with load(engine_artifact) as opened:
        yield opened


def prompt_of(length: int, salt: int = 0) -> list[int]:
    return [(7 * i + 3 * salt + 5 + i * i * salt) % 96 for i in range(length)]
