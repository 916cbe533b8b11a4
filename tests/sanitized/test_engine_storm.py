"""Eight threads on four engines under AddressSanitizer, LeakSanitizer, UndefinedBehaviorSanitizer, ThreadSanitizer."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

OPTIONS = {"max_model_len": 128, "block_size": 16, "max_num_seqs": 8, "max_num_batched_tokens": 64}
# ThreadSanitizer's shadow needs the usual layout of addresses.
FIXED_ADDRESSES = ("setarch", "x86_64", "-R")
SETTINGS = {"ASAN_OPTIONS": "detect_leaks=1:detect_stack_use_after_return=1", "UBSAN_OPTIONS": "print_stacktrace=1",
            "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1"}

pytestmark = pytest.mark.sanitized


@pytest.mark.parametrize("build", ["lib", "thread"], ids=["address", "thread"])
def test_storm(build: str, compiled_artifact: Callable[..., Path], request: pytest.FixtureRequest) -> None:
    program = request.config.getoption("sanitized").resolve().parent / build / "engine_storm"
    artifact = compiled_artifact("tiny", 0, **OPTIONS)
    done = subprocess.run([*FIXED_ADDRESSES, str(program), str(artifact), "40"], capture_output=True, text=True,
                          env=os.environ | SETTINGS, timeout=600)
    assert done.returncode == 0 and done.stdout == "calm\n", done.stderr[-6000:]
