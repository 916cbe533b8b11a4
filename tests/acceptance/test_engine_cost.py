"""What the engine and its C interface add to a decode step of one request."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dsv41c.runtime.load import load
from dsv41c.runtime.sampling_params import SamplingParams

MOST = 1.3  # times the executor's own step
TOKENS = 60


def test_a_decode_step_costs_little_more_than_the_executor(compiled_artifact: Callable[..., Path]) -> None:
    """Of three runs on demo the best, each compared with the steps of that very run."""
    artifact = compiled_artifact("demo", 0, max_model_len=128, max_num_seqs=2, max_num_batched_tokens=32)
    ratios = []
    with load(artifact) as runtime:
        for _ in range(3):
            since = runtime.num_records()
            (answer,) = runtime.engine().generate([[5, 6, 7]], SamplingParams(max_new_tokens=TOKENS, ignore_eos=True))
            steps = [record.us for record in runtime.records(since) if record.method == "decode"]
            assert len(steps) == TOKENS - 1
            ratios.append(answer.decode_seconds * 1e6 / sum(steps))
    assert min(ratios) <= MOST, ratios
