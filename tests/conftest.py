"""Fixtures every test room shares: checkpoints made by the product's own maker, once per session."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

# The oracle is test code, not part of the installed package: `from oracle.model import OracleModel`.
sys.path.insert(0, str(Path(__file__).parent))

MakeCheckpoint = Callable[..., Path]


@pytest.fixture(scope="session")
def make_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> MakeCheckpoint:
    """`make_checkpoint(config, seed, counter=None, recite=None) -> directory`, each one written only once."""
    # Imported here so that tests which need no checkpoint do not depend on the maker.
    from dsv41c.compiler.checkpoint.make import make_checkpoint as write

    @cache
    def made(config: str, seed: int, counter: int | None, recite: str | None) -> Path:
        directory = tmp_path_factory.mktemp("checkpoints") / f"{config}-{seed}"
        write(config, directory, seed=seed, counter=counter, recite=recite)
        return directory

    def make(config: str, seed: int, counter: int | None = None, recite: str | None = None) -> Path:
        return made(config, seed, counter, recite)

    return make


@pytest.fixture(scope="session")
def tiny_checkpoint(make_checkpoint: MakeCheckpoint) -> Path:
    """The random tiny checkpoint of seed 0."""
    return make_checkpoint("tiny", 0)
