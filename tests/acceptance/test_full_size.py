"""The published size: exact inventory, plans within time, memory and size; and its kernel shapes on a small model."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dsv41c.compiler.checkpoint.make import make_checkpoint as write_checkpoint
from dsv41c.compiler.checkpoint.view import CheckpointView
from dsv41c.compiler.driver import compile_checkpoint
from dsv41c.compiler.eager import EagerModel
from dsv41c.compiler.options import CompileOptions
from dsv41c.compiler.weights import load_weights, weight_recipes
from dsv41c.runtime.binding import Error
from dsv41c.runtime.generate import generate
from dsv41c.runtime.library import core_library
from dsv41c.runtime.limits import Limits
from dsv41c.runtime.load import ERROR_BYTES, load
from dsv41c.runtime.requests import Completion, Request
from tests.unit.tools.command_line import MAIN, dsv41c

TENSORS, BYTES = 96_085, 510_286_023_000
GIB = 2**30
SMALL: dict[str, Any] = {"max_model_len": 256, "max_num_batched_tokens": 128}
# Ragged, and one prompt longer than the window of 128 and than the block budget of a decoder layer.
LENGTHS = (*range(1, 14), 17, 20, 140)
SCHEDULES = (11, 12, 13, 14)
NEEDS_NVCC = pytest.mark.skipif(shutil.which("nvcc") is None, reason="not here: nvcc")


@pytest.fixture(scope="module")
def flash(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint("flash", tmp_path_factory.mktemp("flash") / "ckpt", headers_only=True).path


# --- the published checkpoint -----------------------------


def test_inventory_is_exact(flash: Path) -> None:
    found = dsv41c("checkpoint", "inspect", flash, "--json").json
    assert (found["tensors"], found["bytes"], found["shards"]) == (TENSORS, BYTES, 48)
    assert found["deviations"] == []
    assert found["headers_only"] is True
    assert found["groups"]["vision"] == {"tensors": 263, "bytes": 970_506_240}
    assert sum(group["bytes"] for group in found["groups"].values()) == BYTES


def test_tables_are_in_the_last_two_shards(flash: Path) -> None:
    weight_map = json.loads((flash / "model.safetensors.index.json").read_text())["weight_map"]
    tables = {name: file for name, file in weight_map.items() if ".engram.embed." in name}
    assert set(tables.values()) == {"model-00047-of-00048.safetensors", "model-00048-of-00048.safetensors"}
    assert {n for n, f in weight_map.items() if f in tables.values()} == set(tables)


@pytest.mark.parametrize("target", ["cpu", *(pytest.param(t, marks=NEEDS_NVCC) for t in ("sm_90a", "sm_100a"))])
def test_plan_of_the_published_model(target: str, flash: Path, tmp_path: Path) -> None:
    """With an empty kernel cache: under 180 s and 8 GiB. The plan is small and the executor reads it quickly."""
    started = time.perf_counter()
    arguments = ["compile", flash, "-o", tmp_path / "art", "--plan-only", "--target", target, "--json"]
    process = subprocess.Popen([*MAIN, *map(str, arguments)], stdout=subprocess.PIPE,
                               env={**os.environ, "DSV41C_CACHE_DIR": str(tmp_path / "cache")})
    out, _ = process.communicate()
    seconds = time.perf_counter() - started
    assert process.returncode == 0
    # The largest child so far: an upper bound for this one.
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    plan = (tmp_path / "art/plan.json").read_bytes()
    milliseconds = min(_verify_in_cpp(plan) for _ in range(3))
    print(f"{target}: {seconds:.1f} s, {peak / GIB:.2f} GiB, plan {len(plan)} bytes, C++ {milliseconds:.0f} ms",
          file=sys.stderr)
    assert json.loads(out)["plan_bytes"] == len(plan)
    assert seconds < 180
    assert peak < 8 * GIB
    assert target == "cpu" or len(plan) < 5_000_000
    assert milliseconds < 200


def test_a_plan_for_a_million_positions_makes_no_table(flash: Path, tmp_path: Path,
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    """Shapes of rotary tables are enough for a plan."""
    def refuse(*_: object) -> None:
        raise AssertionError("a table was made")

    monkeypatch.setattr("dsv41c.compiler.weights.rotary_table", refuse)
    options = CompileOptions(plan_only=True, max_model_len=1_048_576, max_num_seqs=1)
    plan = compile_checkpoint(flash, tmp_path / "art", options, lambda _: None).plan
    table = next(weight for weight in plan.weights if weight.name == "constants.rotary_compressed")
    assert table.sizes[0] >= 1_048_576


def test_weights_that_are_not_there_are_not_compiled(flash: Path, tmp_path: Path) -> None:
    ended = dsv41c("compile", flash, "-o", tmp_path / "art")
    assert ended.code == 3
    assert ended.err.startswith("DSV41C-E0105 checkpoint without data")
    assert list(tmp_path.iterdir()) == []


def _verify_in_cpp(plan: bytes) -> float:
    text = ctypes.create_string_buffer(ERROR_BYTES)
    error = Error(ctypes.addressof(text), ERROR_BYTES)
    started = time.perf_counter()
    status = core_library().dsv41c_plan_verify(ctypes.c_char_p(plan), ctypes.byref(error))
    assert status == 0, text.value
    return (time.perf_counter() - started) * 1e3


# --- its kernel shapes on a small model -------------------


@pytest.fixture(scope="module")
def small(make_checkpoint: Callable[..., Path]) -> Path:
    return make_checkpoint("small", 0)


def test_small_compiles_within_two_minutes(small: Path, tmp_path: Path) -> None:
    started = time.perf_counter()
    compile_checkpoint(small, tmp_path / "art", CompileOptions(), lambda _: None)
    assert time.perf_counter() - started < 120


def drawn_schedule(seed: int, limits: Limits) -> tuple[Limits, np.ndarray]:
    """Rows a step (which cuts prompts into other chunks), requests at a time, and their order."""
    draws = np.random.default_rng(seed)
    together = int(draws.integers(2, limits.max_num_seqs + 1))
    rows = int(draws.integers(together, limits.max_num_batched_tokens + 1))
    return replace(limits, max_num_seqs=together, max_num_batched_tokens=rows), draws.permutation(len(LENGTHS))


@pytest.mark.slow
def test_ragged_requests_equal_the_eager_model(small: Path, compiled_artifact: Callable[..., Path]) -> None:
    """16 requests at once and in drawn schedules, bit for bit those of the eager model in one schedule."""
    artifact = compiled_artifact("small", 0, **SMALL)
    limits = Limits.read(artifact)
    draws = np.random.default_rng(3)
    requests = [Request(tuple(int(t) for t in draws.integers(0, limits.vocab_size, n)), 4, ignore_eos=True)
                for n in LENGTHS]
    view = CheckpointView.open(small)
    options = CompileOptions(**SMALL).resolved(view.config)
    eager = _EagerExecutor(EagerModel(view.config, options, load_weights(view, weight_recipes(view, options))))
    expected = generate(eager, limits, requests, keep_logits=True)
    schedules = [(limits, np.arange(len(requests))), *(drawn_schedule(seed, limits) for seed in SCHEDULES)]
    assert len({(held.max_num_seqs, held.max_num_batched_tokens, *order) for held, order in schedules}) == 5
    with load(artifact) as runtime:
        for held, order in schedules:
            started = time.perf_counter()
            found = generate(runtime, held, [requests[i] for i in order], keep_logits=True)
            print(f"{held.max_num_seqs} at a time, {held.max_num_batched_tokens} rows: "
                  f"{time.perf_counter() - started:.1f} s", file=sys.stderr)
            _assert_equal(found, [expected[i] for i in order])
        assert "bucketed" in {record.mode for record in runtime.records()}


def _assert_equal(found: Sequence[Completion], expected: Sequence[Completion]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert one.tokens == other.tokens
        assert one.logits is not None and other.logits is not None
        assert one.logits.tobytes() == other.logits.tobytes()


@pytest.mark.parametrize("counter", [1, 2])
def test_the_counter_variant_counts(counter: int, compiled_artifact: Callable[..., Path]) -> None:
    artifact = compiled_artifact("small", 0, counter=counter, **SMALL)
    limits = Limits.read(artifact)
    vocab, prompts = limits.vocab_size, [(4090,), (7, 3, 90)]
    with load(artifact) as runtime:
        completions = generate(runtime, limits, [Request(p, 12, ignore_eos=True) for p in prompts])
    for prompt, completion in zip(prompts, completions, strict=True):
        assert list(completion.tokens) == [(prompt[-1] + 1 + i) % vocab for i in range(12)]


@dataclass
class _EagerExecutor:
    """The eager model as the generation loop drives an executor."""

    model: EagerModel
    _outputs: dict[str, np.ndarray] = field(default_factory=dict)

    def step(self, upload: np.ndarray, keep_rows: np.ndarray, logit_rows: np.ndarray, eager: bool = False) -> None:
        logits, tokens = self.model.step(upload, keep_rows, logit_rows)
        self._outputs = {"logits": logits.numpy(), "tokens": tokens.numpy()}

    def output(self, name: str) -> np.ndarray:
        return self._outputs[name]
