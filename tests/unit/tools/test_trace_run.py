"""`dsv41c bench trace` on an artifact: the steps are those of the simulation, and every eager one has a reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv41c.tools.bench.trace import draw_trace
from dsv41c.tools.bench.trace_run import made_artifact, run_trace_on
from dsv41c.tools.bench.trace_schedule import Schedule, arrival_steps, simulate
from tests.damage.command import Command, check_refusal

SCHEDULE = Schedule(4, 64, 20)
SMALL = {"max_model_len": 256, "max_num_seqs": 4, "max_num_batched_tokens": 64, "bucket_policy": "explicit",
         "max_eager_rows": 24}
SHARED = ("steps", "mean_rows", "pad_share", "step_pad_share", "eager_share", "split_share")
LENGTHS = ("--max-prompt", 200, "--max-output", 12)


def trace(seed: int, requests: int = 12) -> Any:
    return draw_trace(seed, requests, rate=200.0, max_prompt=200, max_output=12)


def check_agreement(result: dict[str, Any]) -> None:
    for axis, figures in result["axes"].items():
        simulated = result["simulated"][axis]
        assert {k: figures[k] for k in SHARED} == pytest.approx({k: simulated[k] for k in SHARED}), axis


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with made_artifact("tiny", trace(1), SCHEDULE) as artifact:
        yield [run_trace_on(artifact, trace(seed)) for seed in (1, 2, 3)]


def test_nearly_every_step_runs_from_graphs(served: list[dict[str, Any]]) -> None:
    for result in served:
        assert result["without_eager_share"] >= 0.99 and result["eager_steps_by_reason"] == {}
        assert result["steps"] == result["steps_without_eager"] > 20
        assert result["tokens_per_s"] > 0 and result["keep"] == 20


def test_the_run_has_the_steps_of_the_simulation(served: list[dict[str, Any]]) -> None:
    for result in served:
        check_agreement(result)
        counted = {c["method"]: c["rows"] for c in result["counters"]}
        assert counted["decode"] + counted["encoder"] == (
            result["prompt_tokens"] + result["output_tokens"] - result["requests"])


def test_every_eager_step_has_a_reason(compiled_artifact: Callable[..., Path]) -> None:
    """Ladders that end early, on purpose: decode at 2 rows, the encoder at 16, in blocks of 24."""
    artifact = compiled_artifact("tiny", 0, **SMALL, buckets=("decode=1,2", "encoder=1,4,16", "decoder=1,4,16"))
    result = run_trace_on(artifact, trace(1))
    assert result["keep"] is None and result["without_eager_share"] < 0.9
    eager_steps = result["steps"] - result["steps_without_eager"]
    assert result["eager_steps_by_reason"] == {"above the largest bucket": eager_steps}
    assert result["axes"]["encoder"]["eager_share"] > 0 and result["axes"]["decoder"]["split_share"] > 0
    eager = [c for c in result["counters"] if c["mode"] == "eager"]
    assert {c["reason"] for c in eager} == {"above the largest bucket"} and not any(c["pad_rows"] for c in eager)
    check_agreement(result)


@given(st.integers(0, 10_000), st.integers(1, 40), st.floats(0.5, 500), st.integers(1, 6))
def test_arrival_steps_are_what_the_simulation_saw(seed: int, requests: int, rate: float, slots: int) -> None:
    drawn = draw_trace(seed, requests, rate, max_prompt=90, max_output=9)
    steps = list(simulate(drawn, Schedule(slots, 32, None)))
    arrivals = arrival_steps(drawn, steps)
    assert arrivals == sorted(arrivals) and arrivals[0] == 0
    for one, number in zip(drawn, arrivals, strict=True):
        assert steps[number].begin_ns >= one.arrival_ns
        assert number == 0 or steps[number - 1].begin_ns < one.arrival_ns


def test_the_command_serves_and_prints(command: Command) -> None:
    asked = ("bench", "trace", "--requests", 4, *LENGTHS)
    result = command(*asked, "--json").json
    assert (result["requests"], result["config"], result["without_eager_share"]) == (4, "tiny", 1.0)
    assert result["longest_prompt"] <= 200
    text = command(*asked).out
    assert "100.00% without an eager run" in text and "tokens/s" in text


def test_lengths_that_do_not_fit_are_refused(compiled_artifact: Callable[..., Path], command: Command) -> None:
    artifact = compiled_artifact("tiny", 0, **SMALL, buckets=("decode=1,2", "encoder=1,4,16", "decoder=1,4,16"))
    check_refusal(command("bench", "trace", artifact, "--requests", 20), "E0901", "--max-prompt", "256")
    assert command("bench", "trace", artifact, "--requests", 3, *LENGTHS).code == 0


def test_one_kind_of_trace_at_a_time(command: Command) -> None:
    check_refusal(command("bench", "trace", "--simulate", "--lengths"), "E0901", "--simulate with --lengths")


@given(st.integers(0, 10_000), st.integers(1, 500), st.integers(1, 500))
def test_cut_lengths_are_the_same_requests(seed: int, prompt: int, output: int) -> None:
    whole, cut = draw_trace(seed, 20), draw_trace(seed, 20, max_prompt=prompt, max_output=output)
    assert [(min(w.prompt, prompt), min(w.output, output), w.arrival_ns) for w in whole] == [
        (c.prompt, c.output, c.arrival_ns) for c in cut]
