"""Three hundred cancels at random phases: one ending each, every page and slot back, the next request right."""

from __future__ import annotations

import random
import threading
from collections import Counter

from dsv41c.runtime.generation import Answer, Generation, Tokens
from dsv41c.runtime.load import Runtime
from dsv41c.runtime.sampling_params import SamplingParams
from tests.unit.runtime.engine.conftest import prompt_of

PHASES = ("at once", "queued", "between chunks", "first token", "later token", "twice", "after the end", "deadline")


class Cancelled:
    """A request that is cancelled at its phase, and how often it ended."""

    def __init__(self, runtime: Runtime, index: int, phase: str) -> None:
        self.phase, self.endings, self.ready = phase, [], threading.Event()
        # Long prompts are computed in chunks, so that a cancel meets them between two.
        length = 100 if phase == "between chunks" else 3 + index % 40
        params = SamplingParams(max_new_tokens=2 if phase == "after the end" else 60, ignore_eos=True,
                                deadline_ms=1 + index % 5 if phase == "deadline" else 0)
        self.generation: Generation = runtime.engine().submit(prompt_of(length, index), params,
                                                              on_tokens=self.tokens, on_end=self.endings.append)
        self.ready.set()
        if phase in ("at once", "twice"):
            self.generation.cancel()

    def tokens(self, news: Tokens) -> None:
        self.ready.wait()
        last = news.first_index + len(news.ids) - 1
        if (self.phase == "first token") or (self.phase == "later token" and last >= 5):
            self.generation.cancel()

    def settle(self, draw: random.Random) -> Answer:
        if self.phase in ("queued", "between chunks"):
            threading.Event().wait(draw.random() * 0.01)
            self.generation.cancel()
        answer = self.generation.wait(60)
        if self.phase in ("twice", "after the end"):
            self.generation.cancel()
            self.generation.cancel()
        return answer


def test_three_hundred_cancels(runtime: Runtime) -> None:
    draw, engine = random.Random(5), runtime.engine(max_batch=8, kv_pages=40)
    expected = engine.generate([prompt_of(9)], SamplingParams(max_new_tokens=6, ignore_eos=True))[0].tokens
    reasons: dict[str, Counter[str]] = {phase: Counter() for phase in PHASES}
    for batch in range(12):
        requests = [Cancelled(runtime, 25 * batch + i, PHASES[(25 * batch + i) % len(PHASES)]) for i in range(25)]
        draw.shuffle(requests)
        for request in requests:
            reasons[request.phase][request.settle(draw).finish_reason] += 1
        for request in requests:
            assert len(request.endings) == 1
        after = engine.submit(prompt_of(9), SamplingParams(max_new_tokens=6, ignore_eos=True)).wait(60)
        assert after.tokens == expected
    stats = engine.stats()
    assert stats["kv_pages_used"] == stats["slots_used"] == stats["requests_active"] == stats["requests_queued"] == 0
    assert sum(stats[f"requests_{how}"] for how in ("done", "cancelled", "failed")) == 300 + 13
    assert set(reasons["at once"]) | set(reasons["first token"]) | set(reasons["twice"]) == {"cancel"}
    assert set(reasons["after the end"]) == {"length"}
    assert reasons["deadline"]["deadline"] > 0 and reasons["between chunks"]["cancel"] > 0


def test_a_cancel_is_seen_within_one_step(runtime: Runtime) -> None:
    """The callback of a token cancels; at most the step that ran meanwhile gives another one, which is not told."""
    engine = runtime.engine()
    ready, holder, told = threading.Event(), [], []

    def tokens(news: Tokens) -> None:
        ready.wait()
        told.append(news)
        steps.append(engine.stats()["steps"])
        holder[0].cancel()

    steps: list[int] = []
    holder.append(engine.submit(prompt_of(9), SamplingParams(max_new_tokens=100, ignore_eos=True), on_tokens=tokens))
    ready.set()
    answer = holder[0].wait()
    assert answer.finish_reason == "cancel" and len(answer.tokens) < 100
    assert engine.stats()["steps"] <= steps[-1] + 1
