"""200 random prompts: greedy with drafts of every kind gives the tokens, and leaves the state, of greedy without."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from dsv41c.runtime.generate import generate
from dsv41c.runtime.limits import Limits
from dsv41c.runtime.load import Runtime, load
from dsv41c.runtime.requests import Completion, Request
from dsv41c.runtime.speculation import Speculation, model_speculation
from tests.laws.drafting import KINDS, Drafting, random_requests

PROMPTS, SEQS, VOCAB = 200, 8, 96
OPTIONS = {"dtype": "float32", "quantizers": "off", "max_model_len": 48, "block_size": 8, "max_num_seqs": SEQS,
           "max_num_batched_tokens": 48, "draft_len": 3, "suffix_mode": "compact", "suffix_keep_tokens": 12}
STOPS = frozenset({3, 50})
Runs = tuple[list[Completion], list[dict[str, np.ndarray]]]


@dataclasses.dataclass(frozen=True)
class Subject:
    drafting: Drafting
    limits: Limits
    runtime: Runtime
    requests: list[Request]
    plain: list[Runs]  # of SEQS prompts each

    def matches(self, speculation: Callable[[Runs], Speculation]) -> list[Speculation]:
        """Tokens, why they end, and bytes of the live state of every prompt."""
        made = []
        for first, want in zip(range(0, PROMPTS, SEQS), self.plain, strict=True):
            made.append(speculation(want))
            got = self.drafting.run(self.runtime, self.limits, self.requests[first : first + SEQS], made[-1])
            assert [(c.tokens, c.finish_reason) for c in got[0]] == [(c.tokens, c.finish_reason) for c in want[0]]
            for caches, expected in zip(got[1], want[1], strict=True):
                assert {n: x.tobytes() for n, x in caches.items()} == {n: x.tobytes() for n, x in expected.items()}
        return made


@pytest.fixture(scope="module")
def subject(compiled_artifact: Callable[..., Path]) -> Iterator[Subject]:
    artifact = compiled_artifact("tiny", 0, **OPTIONS)
    drafting, limits = Drafting.of(artifact, **OPTIONS), dataclasses.replace(Limits.read(artifact), eos_ids=STOPS)
    requests = random_requests(1, PROMPTS, VOCAB, 40, lambda p, rng: Request(p, int(rng.integers(1, 12))))
    with load(artifact) as runtime:
        plain = [drafting.run(runtime, limits, requests[first : first + SEQS], None)
                 for first in range(0, PROMPTS, SEQS)]
        yield Subject(drafting, limits, runtime, requests, plain)


def test_the_requests_end_in_every_way(subject: Subject) -> None:
    ends = [(c.finish_reason, len(c.tokens) == r.max_new_tokens, len(c.prompt_ids) + len(c.tokens) == 48)
            for c, r in zip([c for run in subject.plain for c in run[0]], subject.requests, strict=True)]
    assert {"stop", "length"} == {reason for reason, _, _ in ends}
    assert any(own for _, own, _ in ends) and any(full for _, _, full in ends)


@pytest.mark.parametrize("schedule", ["static", "confidence"])
def test_drafts_of_the_model(subject: Subject, schedule: str) -> None:
    artifact = subject.drafting.artifact
    made = subject.matches(lambda _: model_speculation(subject.runtime, artifact, 3, schedule))
    assert sum(s.counts.proposed for s in made) > PROMPTS


def test_right_drafts_are_accepted_but_for_a_stop_id(subject: Subject) -> None:
    """One token more than the accepted drafts is taken of each block: the one that ends a request is no draft then."""
    made = subject.matches(lambda want: subject.drafting.planned(subject.runtime, want[0], [("right", 3)]))
    proposed, accepted = (sum(getattr(s.counts, name) for s in made) for name in ("proposed", "accepted"))
    stopped = sum(c.finish_reason == "stop" for run in subject.plain for c in run[0])
    assert proposed - stopped <= accepted <= proposed and accepted > PROMPTS


@pytest.mark.parametrize(("kind", "is_proposed"), [("wrong", True), ("empty", False)])
def test_other_drafts_are_never_accepted(subject: Subject, kind: str, is_proposed: bool) -> None:
    made = subject.matches(lambda want: subject.drafting.planned(subject.runtime, want[0], [(kind, 3)]))
    assert sum(s.counts.accepted for s in made) == 0
    assert (sum(s.counts.proposed for s in made) > PROMPTS) == is_proposed


def test_any_drafts_of_any_width(subject: Subject) -> None:
    plan = [(kind, width) for width in (3, 1, 0, 2) for kind in KINDS]
    made = subject.matches(lambda want: subject.drafting.planned(subject.runtime, want[0], plan))
    assert 0 < sum(s.counts.accepted for s in made) < sum(s.counts.proposed for s in made)


def test_more_requests_than_slots_that_arrive_late(subject: Subject) -> None:
    """Slots go to the next request while others verify: tokens only, since slots differ with the number of steps."""
    late = [dataclasses.replace(r, arrival_step=i // 3) for i, r in enumerate(subject.requests)]
    speculation = model_speculation(subject.runtime, subject.drafting.artifact, 3)
    done = generate(subject.runtime, subject.limits, late, speculation=speculation)
    assert [c.tokens for c in done] == [c.tokens for run in subject.plain for c in run[0]]


@pytest.mark.parametrize(("counter", "share"), [(1, 1.0), (2, 0.0)])
def test_a_counter_checkpoint_is_always_right_or_wrong(compiled_artifact: Callable[..., Path], counter: int,
                                                       share: float) -> None:
    artifact = compiled_artifact("tiny", 0, counter, **OPTIONS)
    limits = Limits.read(artifact)
    requests = random_requests(2, SEQS, VOCAB, 30, lambda p, _: Request(p, 12, ignore_eos=True))
    with load(artifact) as runtime:
        speculation = model_speculation(runtime, artifact, 3)
        done = generate(runtime, limits, requests, speculation=speculation)
    assert speculation.counts.accepted == share * speculation.counts.proposed > -1
    for completion in done:
        last = completion.prompt_ids[-1]
        assert list(completion.tokens) == [(last + 1 + i) % VOCAB for i in range(12)]
