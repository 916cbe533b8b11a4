"""Fixtures of the command tests: commands in this process, and the artifact of the tiny checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.damage.command import Command, runner

SMALL = {"max_model_len": 64, "block_size": 16, "max_num_seqs": 4, "max_num_batched_tokens": 24}


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    return runner(capsys)


@pytest.fixture
def artifact(compiled_artifact: Callable[..., Path]) -> Path:
    """Not to be touched."""
    return compiled_artifact("tiny", 0, **SMALL)
