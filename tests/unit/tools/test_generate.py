"""The generation loop on the executor: batching changes nothing, sampling follows its seed, limits hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from dsv41c.compiler.checkpoint.view import CheckpointView
from dsv41c.compiler.eager import EagerModel
from dsv41c.compiler.options import CompileOptions
from dsv41c.compiler.weights import load_weights, weight_recipes
from dsv41c.runtime.generate import generate
from dsv41c.runtime.limits import Limits
from dsv41c.runtime.load import Runtime, load
from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.runtime.requests import Completion, Request

OPTIONS = {"dtype": "float32", "quantizers": "off", "max_model_len": 64, "block_size": 16, "max_num_seqs": 4,
           "max_num_batched_tokens": 24}


@dataclass(frozen=True)
class Subject:
    runtime: Runtime
    limits: Limits
    model: EagerModel

    def __call__(self, *requests: Request, **options: bool) -> list[Completion]:
        return generate(self.runtime, self.limits, requests, **options)


@pytest.fixture(scope="module")
def subject(tiny_checkpoint: Path, compiled_artifact: Callable[..., Path]) -> Iterator[Subject]:
    artifact = compiled_artifact("tiny", 0, **OPTIONS)
    view = CheckpointView.open(tiny_checkpoint)
    options = CompileOptions(**OPTIONS).resolved(view.config)
    model = EagerModel(view.config, options, load_weights(view, weight_recipes(view, options)))
    with load(artifact) as runtime:
        yield Subject(runtime, Limits.read(artifact), model)


def prompt_of(length: int, salt: int = 0) -> list[int]:
    return [(7 * i + 3 * salt + 5) % 96 for i in range(length)]


def test_one_request_equals_the_eager_model(subject: Subject) -> None:
    (completion,) = subject(Request(prompt_of(11), 20, ignore_eos=True))
    assert list(completion.tokens) == subject.model.generate(prompt_of(11), 20)
    assert completion.finish_reason == "length"


def test_sixteen_staggered_requests_equal_the_eager_model(subject: Subject) -> None:
    """More requests than slots, prompts longer than a step, arrivals spread over the run, some far after its end."""
    requests = [Request(prompt_of(1 + (5 * i) % 41, i), 6 + i % 5, ignore_eos=True, arrival_step=(i * i) % 50)
                for i in range(15)]
    requests.append(Request(prompt_of(30, 99), 5, ignore_eos=True, arrival_step=10_000))
    for request, completion in zip(requests, subject(*requests), strict=True):
        assert list(completion.tokens) == subject.model.generate(request.prompt_ids, request.max_new_tokens)
        assert completion.prompt_ids == tuple(request.prompt_ids)


def test_eager_and_bucketed_give_the_same_tokens(subject: Subject) -> None:
    requests = [Request(prompt_of(3 + i, i), 6, ignore_eos=True) for i in range(3)]
    assert subject(*requests) == subject(*requests, eager=True)


def test_logits_have_one_row_for_each_token(subject: Subject) -> None:
    requests = [Request(prompt_of(30, i), 3 + i, ignore_eos=True) for i in range(5)]
    for completion in subject(*requests, keep_logits=True):
        assert completion.logits is not None
        assert completion.logits.dtype == np.float32
        assert completion.logits.argmax(1).tolist() == list(completion.tokens)


@pytest.mark.parametrize("top_p", [1.0, 0.8])
def test_a_seed_gives_the_same_tokens_alone_and_in_a_batch(subject: Subject, top_p: float) -> None:
    """Among greedy and other sampled requests, and whenever it arrives."""
    wanted = Request(prompt_of(9), 12, temperature=1.3, top_p=top_p, seed=2**64 - 1, ignore_eos=True)
    (alone,) = subject(wanted)
    others = [replace(wanted, seed=i, temperature=float(i % 2)) for i in range(6)]
    batched = subject(*others, replace(wanted, arrival_step=3))
    assert batched[-1] == alone
    assert len({completion.tokens for completion in batched if completion != alone}) > 2


def test_temperature_near_zero_is_greedy(subject: Subject) -> None:
    greedy = Request(prompt_of(9), 12, ignore_eos=True)
    assert subject(replace(greedy, temperature=1e-300)) == subject(greedy)


def test_eos_ends_a_request_unless_ignored(subject: Subject) -> None:
    """The token that the model says fifth is declared to be EOS; it is kept as the last token."""
    request = Request(prompt_of(11), 20)
    (free,) = subject(replace(request, ignore_eos=True))
    eos = free.tokens[4]
    limits = replace(subject.limits, eos_ids=frozenset({eos}))
    (stopped,) = generate(subject.runtime, limits, [request])
    assert stopped.tokens == free.tokens[: free.tokens.index(eos) + 1]
    assert stopped.finish_reason == "stop"


@pytest.mark.parametrize("length", [61, 62, 63])
def test_generation_stops_at_the_length_limit(subject: Subject, length: int) -> None:
    (completion,) = subject(Request(prompt_of(length), 10, ignore_eos=True))
    assert len(completion.tokens) == 64 - length
    assert completion.finish_reason == "length"


@pytest.mark.parametrize("length", [64, 65, 200])
def test_a_prompt_without_room_for_a_token_is_refused(subject: Subject, length: int) -> None:
    with pytest.raises(Dsv41cError) as caught:
        subject(Request(prompt_of(length), 1))
    assert caught.value.code == "DSV41C-E0902"
    assert f"{length}" in caught.value.found
    assert "max_model_len 64" in caught.value.needed


@pytest.mark.parametrize("bad", [-1, 96, 2**31 - 1, 2**31, 2**63, 1.5, True, "7", None])
def test_an_id_outside_the_vocabulary_is_named(subject: Subject, bad: object) -> None:
    with pytest.raises(Dsv41cError) as caught:
        subject(Request([95], 1), Request([0, bad], 1))  # type: ignore[list-item]
    assert caught.value.code == "DSV41C-E0902"
    assert caught.value.subject == "prompt of request 1, id at index 1"
    assert caught.value.found == repr(bad)
    assert "0..95" in caught.value.needed


def test_an_empty_prompt_is_refused(subject: Subject) -> None:
    with pytest.raises(Dsv41cError, match="E0902"):
        subject(Request([], 1))


@pytest.mark.parametrize(("field", "value"), [
    ("max_new_tokens", 0), ("max_new_tokens", 1.0), ("temperature", -0.1), ("temperature", float("nan")),
    ("temperature", float("inf")), ("top_p", 0.0), ("top_p", 1.1), ("seed", -1), ("seed", 2**64), ("seed", True),
    ("arrival_step", -1), ("ignore_eos", 1),
])
def test_a_bad_setting_is_named(subject: Subject, field: str, value: object) -> None:
    with pytest.raises(Dsv41cError) as caught:
        subject(replace(Request([1], 1), **{field: value}))
    assert caught.value.code == "DSV41C-E0901"
    assert field in caught.value.subject
    assert caught.value.found == repr(value)
