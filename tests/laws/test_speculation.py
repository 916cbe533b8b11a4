"""H: greedy speculative decoding equals plain greedy, and caches after rollback equal those of the plain run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dsv41c.compiler.checkpoint.view import CheckpointView
from dsv41c.compiler.eager import EagerModel, request_rows
from dsv41c.compiler.options import CompileOptions
from dsv41c.compiler.weights import load_weights, weight_recipes
from tests.laws.live_caches import live_caches

LENGTH, PROMPT = 30, 12


class _Run:
    """One eager model with drafts on the tiny checkpoint; slot 0 is decoded plainly, slot 1 with drafts."""

    def __init__(self, checkpoint: Path, dtype: str, quantizers: str) -> None:
        self.view = CheckpointView.open(checkpoint, draft=True)
        self.options = CompileOptions(dtype=dtype, quantizers=quantizers, max_model_len=64, block_size=4,
                                      max_num_seqs=2,
                                      draft_len=self.view.config.dspark_block_size).resolved(self.view.config)
        weights = load_weights(self.view, weight_recipes(self.view, self.options))
        self.model = EagerModel(self.view.config, self.options, weights)

    def plain(self, prompt: list[int]) -> list[int]:
        return self.model.generate(prompt, LENGTH, slot=0)

    def speculative(self, prompt: list[int], choose: list[tuple[str, int]], truth: list[int]) -> list[int]:
        model, options = self.model, self.options
        _, first = model.step(request_rows(1, prompt, 0, options), None, np.array([len(prompt) - 1], dtype=np.int32))
        tokens = [int(first[0])]
        for step in range(LENGTH):
            if len(tokens) >= LENGTH:
                break
            kind, width = choose[step % len(choose)]
            drafts = self._drafts(kind, tokens, truth)[:width]
            length = int(model.state["slot_position"][1])
            _, verified = model.step(request_rows(1, [tokens[-1], *drafts], length, options))
            expected = verified.tolist()
            accepted = next((i for i, d in enumerate(drafts) if d != expected[i]), len(drafts))
            model.rollback(1, length + accepted + 1)
            tokens += expected[: accepted + 1]
        return tokens

    def _drafts(self, kind: str, tokens: list[int], truth: list[int]) -> list[int]:
        if kind == "model":
            return [int(t) for t in self.model.draft([1], tokens[-1:]).tokens[0]]
        ahead = truth[len(tokens) : len(tokens) + 3]
        return ahead if kind == "right" else [(t + 1) % 95 for t in ahead]

    def live_caches(self, slot: int, length: int) -> dict[str, np.ndarray]:
        def read(name: str) -> np.ndarray:
            tensor = self.model.state[name]
            return (tensor.view(torch.uint16) if tensor.dtype is torch.bfloat16 else tensor).numpy()

        return live_caches(read, list(self.model.state), self.view.config, self.options, slot, length)


@pytest.fixture(scope="module", params=[("float32", "off"), ("bfloat16", "fake")], ids="-".join)
def run(request: pytest.FixtureRequest, tiny_checkpoint: Path) -> _Run:
    return _Run(tiny_checkpoint, *request.param)


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32 - 1), choose=st.lists(
    st.tuples(st.sampled_from(["model", "right", "wrong"]), st.integers(0, 3)), min_size=1, max_size=5))
def test_h_any_drafts_of_any_width_are_lossless(run: _Run, seed: int, choose: list[tuple[str, int]]) -> None:
    prompt = [int(t) for t in np.random.default_rng(seed).integers(0, 95, PROMPT)]
    truth = run.plain(prompt)
    tokens = run.speculative(prompt, choose, truth)
    assert tokens[:LENGTH] == truth
    length = min(int(run.model.state["slot_position"][s]) for s in (0, 1))
    for slot in (0, 1):
        run.model.rollback(slot, length)
    plain, speculative = run.live_caches(0, length), run.live_caches(1, length)
    for name in plain:
        np.testing.assert_array_equal(plain[name], speculative[name], err_msg=name)
