"""H on the executor: with any drafts of any width, tokens, logits and state are those of a run without drafts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dsv41c.compiler.checkpoint.view import CheckpointView
from dsv41c.compiler.eager import EagerModel, request_rows
from dsv41c.compiler.weights import load_weights, weight_recipes
from dsv41c.runtime.limits import Limits
from dsv41c.runtime.load import Runtime, load
from dsv41c.runtime.requests import Request
from dsv41c.runtime.speculation import SCHEDULES, model_speculation
from dsv41c.runtime.step_rows import FLOOR
from tests.laws.drafting import KINDS, Drafting, assert_same_run, random_requests

OPTIONS = {"max_model_len": 48, "block_size": 4, "max_num_seqs": 3, "max_num_batched_tokens": 20, "draft_len": 3}
SUBJECTS: Mapping[str, Mapping[str, object]] = {
    "off": {"dtype": "float32", "quantizers": "off"},
    "mask": {"dtype": "float32", "quantizers": "off", "suffix_mode": "mask"},
    "compact": {"dtype": "bfloat16", "quantizers": "fake", "suffix_mode": "compact", "suffix_keep_tokens": 12},
}
PLANS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 3)), min_size=1, max_size=7)


@dataclasses.dataclass(frozen=True)
class Subject:
    drafting: Drafting
    limits: Limits
    runtimes: Mapping[str, Runtime]

    def matches(self, kind: str, requests: list[Request], plan: list[tuple[str, int]],
                limits: Limits | None = None) -> None:
        limits = limits or self.limits
        want = self.drafting.run(self.runtimes["bucketed"], limits, requests, None)
        runtime = self.runtimes[kind]
        speculation = self.drafting.planned(runtime, want[0], plan)
        assert_same_run(self.drafting.run(runtime, limits, requests, speculation, kind == "exact"), want)


@pytest.fixture(scope="module", params=list(SUBJECTS))
def subject(request: pytest.FixtureRequest, compiled_artifact: Callable[..., Path]) -> Iterator[Subject]:
    options = {**OPTIONS, **SUBJECTS[request.param]}
    artifact = compiled_artifact("tiny", 0, **options)
    bucketed, poisoned, checked = load(artifact), load(artifact, poison=0xFF), load(artifact, check="full")
    with bucketed, poisoned, checked:
        runtimes = {"bucketed": bucketed, "exact": bucketed, "poisoned": poisoned, "checked": checked}
        yield Subject(Drafting.of(artifact, **options), Limits.read(artifact), runtimes)


def any_request(prompt: list[int], rng: np.random.Generator) -> Request:
    """Greedy or sampled; some end at the artifact's length, some at their own."""
    return Request(prompt, int(rng.integers(1, 25)), temperature=float(rng.choice([0.0, 0.0, 0.8])), top_p=0.9,
                   seed=int(rng.integers(0, 99)))


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32 - 1), plan=PLANS, kind=st.sampled_from(["bucketed", "exact", "poisoned"]))
def test_any_drafts_change_nothing(subject: Subject, seed: int, plan: list[tuple[str, int]], kind: str) -> None:
    """Prompts in chunks beside verifications, greedy and sampled requests."""
    subject.matches(kind, random_requests(seed, 3, 96, 44, any_request), plan)


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32 - 1), plan=PLANS, at=st.integers(1, 11))
def test_a_stop_id_inside_a_block_ends_the_request_there(subject: Subject, seed: int, plan: list[tuple[str, int]],
                                                         at: int) -> None:
    requests = random_requests(seed, 2, 96, 20, lambda prompt, rng: Request(prompt, 12))
    free = dataclasses.replace(subject.limits, eos_ids=frozenset())
    done, _ = subject.drafting.run(subject.runtimes["bucketed"], free, requests, None)
    stops = dataclasses.replace(free, eos_ids=frozenset({done[0].tokens[at]}))
    subject.matches("bucketed", requests, plan, stops)


@pytest.mark.parametrize("kind", KINDS)
def test_full_checks_trap_nothing(subject: Subject, kind: str) -> None:
    """No row reads what lies behind a position, or below a floor: there the checks keep what nobody has written."""
    requests = random_requests(5, 3, 96, 30, lambda prompt, rng: Request(prompt, 8, ignore_eos=True))
    subject.matches("checked", requests, [(kind, 3), (kind, 2)])


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_both_schedules_change_nothing(subject: Subject, schedule: str) -> None:
    requests = random_requests(7, 3, 96, 30, any_request)
    runtime = subject.runtimes["bucketed"]
    want = subject.drafting.run(runtime, subject.limits, requests, None)
    speculation = model_speculation(runtime, subject.drafting.artifact, 3, schedule)
    assert_same_run(subject.drafting.run(runtime, subject.limits, requests, speculation), want)
    assert speculation.counts.steps > 0 and speculation.counts.proposed > 0


@pytest.mark.parametrize("kind", ["bucketed", "exact", "poisoned", "checked"])
def test_drafts_are_those_of_the_eager_model(subject: Subject, kind: str, tiny_checkpoint: Path) -> None:
    """Tokens and bits of the confidence, of two slots drafted together, above and below their floors."""
    view, options = CheckpointView.open(tiny_checkpoint, draft=True), subject.drafting.options
    eager = EagerModel(view.config, options, load_weights(view, weight_recipes(view, options)))
    runtime = subject.runtimes[kind]
    for slot, length in ((0, 18), (2, 5)):
        upload = request_rows(slot, [(11 * slot + 7 * i) % 96 for i in range(length)], 0, options)
        first = subject.limits.first_kept(length)
        upload[first, 3] |= FLOOR if first else 0
        kept = np.arange(0 if subject.limits.runs_all_rows else first, length, dtype=np.int32)
        eager.step(upload, kept, np.array([len(kept) - 1], np.int32))
        runtime.step(upload, kept, np.array([len(kept) - 1], np.int32), kind == "exact")
    want = eager.draft([2, 0], [40, -1])
    runtime.draft(np.array([(2, 0, 40, 0, -1), (0, 0, -1, 0, -1)], np.int32), kind == "exact")
    assert runtime.output("draft_tokens").tolist() == want.tokens.tolist()
    assert runtime.output("confidence").tobytes() == want.confidence.numpy().tobytes()
