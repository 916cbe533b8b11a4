"""The counter checkpoint: greedy output counts upwards, drafts are always right or always wrong; no oracle needed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dsv41c.compiler.checkpoint.view import CheckpointView
from dsv41c.compiler.eager import EagerModel, request_rows
from dsv41c.compiler.options import CompileOptions
from dsv41c.compiler.weights import load_weights, weight_recipes
from dsv41c.runtime.generate import generate
from dsv41c.runtime.limits import Limits
from dsv41c.runtime.load import load
from dsv41c.runtime.requests import Request

BF16_FAKE = {"dtype": "bfloat16", "quantizers": "fake"}


@pytest.mark.parametrize("config", ["tiny", "demo"])
@pytest.mark.parametrize("counter", [1, 2])
def test_two_hundred_tokens_count_upwards(config: str, counter: int, compiled_artifact: Callable[..., Path]) -> None:
    """From prompts of several lengths, modulo the vocabulary, in one batch."""
    artifact = compiled_artifact(config, 0, counter=counter, **BF16_FAKE)
    limits = Limits.read(artifact)
    vocab = limits.vocab_size
    prompts = [[vocab - 50], [7, 3, 90], list(range(40, 0, -1))]
    with load(artifact) as runtime:
        completions = generate(runtime, limits, [Request(p, 200, ignore_eos=True) for p in prompts])
    for prompt, completion in zip(prompts, completions, strict=True):
        assert list(completion.tokens) == [(prompt[-1] + 1 + i) % vocab for i in range(200)]


@pytest.mark.parametrize("config", ["tiny", "demo"])
@pytest.mark.parametrize(("counter", "rate"), [(1, 1.0), (2, 0.0)])
def test_drafts_are_always_right_or_always_wrong(config: str, counter: int, rate: float,
                                                 make_checkpoint: Callable[..., Path]) -> None:
    """Static verification of every draft over at least 60 tokens accepts all of them (1) or none (2)."""
    view = CheckpointView.open(make_checkpoint(config, 0, counter), draft=True)
    options = CompileOptions(**BF16_FAKE, max_model_len=512, block_size=16,
                             draft_len=view.config.dspark_block_size).resolved(view.config)
    weights = load_weights(view, weight_recipes(view, options))
    model = EagerModel(view.config, options, weights)
    prompt = [5, 17, 30]
    _, first = model.step(request_rows(0, prompt, 0, options), None, np.array([2], dtype=np.int32))
    tokens, accepted, drafted = [int(first[0])], 0, 0
    while len(tokens) < 60:
        drafts = model.draft([0], tokens[-1:]).tokens[0].tolist()
        length = int(model.state["slot_position"][0])
        _, verified = model.step(request_rows(0, [tokens[-1], *drafts], length, options))
        expected = verified.tolist()
        count = next((i for i, d in enumerate(drafts) if d != expected[i]), len(drafts))
        model.rollback(0, length + count + 1)
        tokens += expected[: count + 1]
        accepted, drafted = accepted + count, drafted + len(drafts)
    assert accepted / drafted == rate
    assert tokens == [(31 + i) % view.config.vocab_size for i in range(len(tokens))]
