"""The executor against the independent float64 model: tiny, float32, no quantizers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dsv41c.runtime.generate import generate
from dsv41c.runtime.limits import Limits
from dsv41c.runtime.load import load
from dsv41c.runtime.requests import Completion, Request
from oracle.model import OracleModel

TOLERANCE = 1e-5  # relative L2 of every row


def worst_row(oracle: OracleModel, completion: Completion) -> float:
    expected = oracle.continuation_logits(list(completion.prompt_ids), list(completion.tokens))
    assert completion.logits is not None and completion.logits.shape == expected.shape
    distance = np.linalg.norm(completion.logits.astype(np.float64) - expected, axis=1)
    return float((distance / np.linalg.norm(expected, axis=1)).max())


@pytest.mark.parametrize("seed", [0, 3])
def test_one_request(seed: int, make_checkpoint: Callable[..., Path], compiled_artifact: Callable[..., Path]) -> None:
    """64 greedy tokens of one request equal the float64 model's, and so does every logits row within 1e-5."""
    oracle = OracleModel(make_checkpoint("tiny", seed))
    artifact = compiled_artifact("tiny", seed, dtype="float32", quantizers="off")
    prompt = [int(t) for t in np.random.default_rng(seed).integers(0, 96, 24)]
    with load(artifact) as runtime:
        request = Request(prompt, 64, ignore_eos=True)
        (completion,) = generate(runtime, Limits.read(artifact), [request], keep_logits=True)
    assert list(completion.tokens) == oracle.generate(prompt, 64)
    assert worst_row(oracle, completion) <= TOLERANCE


def test_sixteen_ragged_requests_with_staggered_arrival(make_checkpoint: Callable[..., Path],
                                                        compiled_artifact: Callable[..., Path]) -> None:
    """The same for 16 requests of different lengths that join one batch at different steps."""
    oracle = OracleModel(make_checkpoint("tiny", 0))
    artifact = compiled_artifact("tiny", 0, dtype="float32", quantizers="off", max_num_batched_tokens=48)
    rng = np.random.default_rng(7)
    prompts = [[int(t) for t in rng.integers(0, 96, n)] for n in rng.integers(1, 60, 16)]
    requests = [Request(p, 64, ignore_eos=True, arrival_step=int(rng.integers(0, 20))) for p in prompts]
    with load(artifact) as runtime:
        completions = generate(runtime, Limits.read(artifact), requests, keep_logits=True)
    for prompt, completion in zip(prompts, completions, strict=True):
        assert list(completion.tokens) == oracle.generate(prompt, 64)
        assert worst_row(oracle, completion) <= TOLERANCE
