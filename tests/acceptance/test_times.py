"""How long a user waits: compiling, loading. (`--help` is timed with the other command line tests.)"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dsv41c.compiler.driver import compile_checkpoint
from dsv41c.compiler.options import CompileOptions
from dsv41c.runtime.load import load


@pytest.mark.parametrize(("config", "seconds"), [("tiny", 20), ("demo", 60)])
def test_compile(config: str, seconds: float, make_checkpoint: Callable[..., Path], tmp_path: Path) -> None:
    checkpoint = make_checkpoint(config, 0)
    start = time.perf_counter()
    compile_checkpoint(checkpoint, tmp_path / "art", CompileOptions(), lambda _: None)
    assert time.perf_counter() - start < seconds


def test_load_of_tiny(compiled_artifact: Callable[..., Path]) -> None:
    """Under half a second once the libraries are in the process: parse, verify, map, reserve, bind every bucket."""
    artifact = compiled_artifact("tiny", 0)
    load(artifact).close()
    times = []
    for _ in range(3):
        start = time.perf_counter()
        load(artifact).close()
        times.append(time.perf_counter() - start)
    assert min(times) < 0.5
