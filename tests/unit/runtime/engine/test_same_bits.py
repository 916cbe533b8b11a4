"""A request's tokens and log-probability bits are the same alone, among 31 others, joined late and preempted."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from dsv41c.runtime.generation import Answer
from dsv41c.runtime.load import load
from dsv41c.runtime.sampling_params import SamplingParams
from tests.unit.runtime.engine.conftest import OPTIONS, prompt_of

GREEDY = SamplingParams(max_new_tokens=24, ignore_eos=True, n_logprobs=3)
SEEDED = SamplingParams(max_new_tokens=24, ignore_eos=True, temperature=1.2, top_p=0.95, seed=7, n_logprobs=3)
Said = tuple[tuple[int, ...], tuple[float, ...], tuple[tuple[tuple[int, float], ...], ...]]


def said(answer: Answer) -> Said:
    assert answer.error is None
    return answer.tokens, answer.logprobs, answer.top_logprobs


@pytest.fixture(scope="module", params=["off", "mask", "compact"])
def artifact(request: pytest.FixtureRequest, compiled_artifact: Callable[..., Path]) -> Path:
    return compiled_artifact("tiny", 0, suffix_mode=request.param, **OPTIONS)


@pytest.mark.parametrize("params", [GREEDY, SEEDED], ids=["greedy", "seeded"])
def test_alone_among_others_late_and_preempted(artifact: Path, params: SamplingParams) -> None:
    prompt = prompt_of(37, 1)
    others = [prompt_of(1 + (11 * i) % 70, i + 2) for i in range(31)]
    noise = [SamplingParams(max_new_tokens=5 + i % 30, temperature=i % 2, seed=i, ignore_eos=True) for i in range(31)]
    with load(artifact) as runtime:
        alone = said(runtime.engine().generate([prompt], params)[0])
        among = runtime.engine().generate([*others[:16], prompt, *others[16:]], [*noise[:16], params, *noise[16:]])
        assert said(among[16]) == alone

        running = threading.Event()
        early = [runtime.engine().submit(p, n, on_tokens=lambda _: running.set())
                 for p, n in zip(others, noise, strict=True)]
        running.wait()
        assert said(runtime.engine().submit(prompt, params).wait()) == alone
        assert [g.wait().error for g in early] == [None] * 31

        # The prompt fills three pages and the answer a fourth; of two such requests the second gives way.
        small = runtime.engine(kv_pages=7)
        first, preempted = small.generate([prompt_of(37, 9), prompt], params)
        assert preempted.preemptions == 1 and first.preemptions == 0
        assert said(preempted) == alone
        assert small.stats()["preemptions"] == 1


def test_order_of_submission_changes_nothing(artifact: Path) -> None:
    """With too few pages for all: who is preempted differs, what they say does not."""
    prompts = [prompt_of(5 + 9 * i, i) for i in range(10)]
    with load(artifact) as runtime:
        engine = runtime.engine(kv_pages=12)
        forwards = engine.generate(prompts, GREEDY)
        backwards = engine.generate(prompts[::-1], GREEDY)[::-1]
        assert engine.stats()["preemptions"] > 0
        alone = [said(runtime.engine().generate([prompt], GREEDY)[0]) for prompt in prompts]
    assert [said(a) for a in forwards] == [said(a) for a in backwards] == alone
