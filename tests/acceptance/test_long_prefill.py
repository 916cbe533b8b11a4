"""Prompts of 16,384 and 65,536 rows in one step: the encoder runs eagerly in blocks while the decoder replays graphs,
with the bits of a chunked prefill and in the memory that was printed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from dsv41c.compiler.checkpoint.make import make_checkpoint
from dsv41c.compiler.driver import compile_checkpoint
from dsv41c.compiler.options import CompileOptions
from dsv41c.runtime.generate import generate
from dsv41c.runtime.limits import Limits
from dsv41c.runtime.load import DecisionRecord, Runtime, load
from dsv41c.runtime.requests import Completion, Request
from tests.damage.command import runner

CHUNK, BLOCK_ROWS, POSITIONS = 4096, 8192, 131_072


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("long") / "checkpoint"
    return make_checkpoint("tiny", folder, seed=0, max_position_embeddings=POSITIONS).path


@dataclass(frozen=True)
class Prefilled:
    completion: Completion
    records: list[DecisionRecord]
    state: dict[str, np.ndarray]
    memory: dict[str, int]
    reserved: int


def prefill(checkpoint: Path, folder: Path, prompt: list[int], rows: int, mode: str) -> Prefilled:
    """The prompt and two tokens, in steps of at most `rows`. The state is that behind them, without trash."""
    options = CompileOptions(max_model_len=len(prompt) + 4, max_num_seqs=2, max_num_batched_tokens=rows,
                             dtype="float32", quantizers="off", suffix_mode=mode)
    artifact = folder / f"rows{rows}"
    compile_checkpoint(checkpoint, artifact, options, lambda _: None)
    with load(artifact) as runtime:
        (completion,) = generate(runtime, Limits.read(artifact), [Request(prompt, 2, ignore_eos=True)],
                                 keep_logits=True)
        report = runtime.report()
        return Prefilled(completion, runtime.records(), live_state(runtime, artifact), report["memory"],
                         report["reserved_bytes"])


def live_state(runtime: Runtime, artifact: Path) -> dict[str, np.ndarray]:
    names = [state["name"] for state in json.loads((artifact / "plan.json").read_text())["state"]]
    return {name: runtime.state(name)[:-1].copy() for name in names}


def runs(records: list[DecisionRecord], method: str) -> Iterator[tuple[int, str, str]]:
    return ((r.rows, r.mode, r.reason) for r in records if r.method == method)


@pytest.mark.parametrize(("rows", "mode"), [(16_384, "off"), (65_536, "compact")])
def test_one_step_has_the_bits_of_chunks(checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                         rows: int, mode: str) -> None:
    prompt = [int(token) for token in np.random.default_rng(7).integers(0, 96, rows)]
    whole = prefill(checkpoint, tmp_path, prompt, rows, mode)
    chunked = prefill(checkpoint, tmp_path, prompt, CHUNK, mode)
    assert whole.completion.tokens == chunked.completion.tokens
    assert whole.completion.logits is not None and chunked.completion.logits is not None
    assert whole.completion.logits.tobytes() == chunked.completion.logits.tobytes()
    assert whole.state.keys() == chunked.state.keys()
    for name, values in whole.state.items():
        assert values.tobytes() == chunked.state[name].tobytes(), name
    blocks = rows // BLOCK_ROWS
    assert list(runs(whole.records, "encoder")) == [
        (BLOCK_ROWS, "eager", f"above the largest bucket, block {i + 1} of {blocks}") for i in range(blocks)]
    kept = [(20, "bucketed", "bucket")] if mode == "compact" else [
        (BLOCK_ROWS, "bucketed", f"part {i + 1} of {blocks} of a split") for i in range(blocks)]
    assert list(runs(whole.records, "decoder")) == kept
    assert {r.mode for r in chunked.records} == {"bucketed"}
    command = runner(capsys)
    for name in ("inspect", "explain"):
        assert "above them eager in blocks of 8,192 rows" in command(name, tmp_path / f"rows{rows}").out
    shown = command("inspect", tmp_path / f"rows{rows}", "--json").json["memory"]
    assert shown["arena_bytes"] == whole.memory["arena"] < 2.1 * chunked.memory["arena"]
    assert shown["total_bytes"] == whole.reserved
