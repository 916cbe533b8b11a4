"""Log-probabilities of prompts: those of the eager model with whole windows, in any chunks; refused beyond the plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from dsv41c.compiler.checkpoint.view import CheckpointView
from dsv41c.compiler.eager import EagerModel, request_rows
from dsv41c.compiler.options import CompileOptions
from dsv41c.compiler.weights import load_weights, weight_recipes
from dsv41c.runtime.generate import generate
from dsv41c.runtime.limits import Limits
from dsv41c.runtime.load import load
from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.runtime.requests import Completion, Request
from tests.unit.tools.command_line import dsv41c

OPTIONS = {"dtype": "float32", "quantizers": "off", "max_model_len": 64, "block_size": 16, "max_num_seqs": 4,
           "max_num_batched_tokens": 24}
SUFFIX = {"suffix_mode": "compact", "suffix_keep_tokens": 12}
KEPT = 12


@dataclass
class Subject:
    artifact: Path
    model: EagerModel  # of whole windows

    def run(self, *requests: Request) -> list[Completion]:
        with load(self.artifact) as runtime:
            return generate(runtime, Limits.read(self.artifact), requests)

    def scores(self, prompt: list[int]) -> np.ndarray:
        logits, _ = self.model.step(request_rows(0, prompt, 0, self.model.options))
        return torch.log_softmax(logits.double(), 1)[np.arange(len(prompt) - 1), prompt[1:]].numpy()


@pytest.fixture(scope="module", params=[{}, {"full_decoder_rows": 5}, {**SUFFIX, "full_decoder_rows": 20},
                        {**SUFFIX, "suffix_mode": "mask", "full_decoder_rows": 24}],
                ids=["all rows", "all rows and 5", "compact", "mask"])
def subject(request: pytest.FixtureRequest, tiny_checkpoint: Path, compiled_artifact: Callable[..., Path]) -> Subject:
    view = CheckpointView.open(tiny_checkpoint)
    options = CompileOptions(**OPTIONS).resolved(view.config)
    model = EagerModel(view.config, options, load_weights(view, weight_recipes(view, options)))
    return Subject(compiled_artifact("tiny", 0, **OPTIONS, **request.param), model)


def prompt_of(length: int, salt: int = 0) -> list[int]:
    return [(7 * i + 3 * salt + 5) % 96 for i in range(length)]


def scoring(length: int, salt: int = 0) -> Request:
    return Request(prompt_of(length, salt), 3, ignore_eos=True, prompt_logprobs=True)


@pytest.mark.parametrize("length", [1, 2, 11, 12, 13, 25, 32])
def test_they_are_those_of_the_eager_model(subject: Subject, length: int) -> None:
    (completion,) = subject.run(scoring(length))
    assert completion.prompt_logprobs is not None
    assert len(completion.prompt_logprobs) == length - 1
    np.testing.assert_allclose(completion.prompt_logprobs, subject.scores(prompt_of(length)), atol=1e-6)
    assert list(completion.tokens) == subject.model.generate(prompt_of(length), 3)


def test_batch_mates_change_no_bit(subject: Subject) -> None:
    """Several of them share the rows that are planned, beside requests that want none."""
    requests = [scoring(9 + 7 * i, i) for i in range(4)] + [replace(scoring(30, 5), prompt_logprobs=False)]
    together = subject.run(*requests)
    assert together == [subject.run(request)[0] for request in requests]
    assert together[-1].prompt_logprobs is None


def test_more_rows_than_planned_are_refused(tiny_checkpoint: Path, compiled_artifact: Callable[..., Path]) -> None:
    artifact = compiled_artifact("tiny", 0, **OPTIONS, **SUFFIX, full_decoder_rows=7)
    limits = Limits.read(artifact)
    with load(artifact) as runtime:
        generate(runtime, limits, [scoring(KEPT + 7)])
        before = runtime.num_records()
        with pytest.raises(Dsv41cError, match="DSV41C-E0901") as caught:
            generate(runtime, limits, [scoring(3), scoring(KEPT + 8)])
        assert runtime.num_records() == before
    assert caught.value.subject == "prompt_logprobs of request 1"
    assert caught.value.found == "8 rows of the prompt before the 12 that are kept"
    assert caught.value.needed == "at most 7, the full_decoder_rows of the artifact"
    assert "--full-decoder-rows 8" in caught.value.do


def test_the_command_prints_them(compiled_artifact: Callable[..., Path]) -> None:
    artifact = compiled_artifact("tiny", 0, **OPTIONS, **SUFFIX, full_decoder_rows=7)
    done = dsv41c("run", str(artifact), "--prompt-ids", "5,12,19", "--max-new-tokens", "2", "--prompt-logprobs",
                  "--json")
    (request,) = done.json["requests"]
    first, *others = request["prompt_logprobs"]
    assert first is None
    assert len(others) == 2
    assert all(score < 0 for score in others)
