"""One file of requests, the same tokens, finish reasons and log-probability bits everywhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.vectors import OPTIONS, REQUESTS, Outcome, Reference, c_answers, python_answers
from tests.native.c_programs import NATIVE, build

CHECKPOINTS = {"tiny": ("tiny", None), "demo": ("demo", None), "counter": ("tiny", 1)}


@pytest.fixture(scope="module", params=CHECKPOINTS)
def artifact_and_answers(request: pytest.FixtureRequest, make_checkpoint: Callable[..., Path],
                         compiled_artifact: Callable[..., Path]) -> tuple[Path, list[Outcome]]:
    config, counter = CHECKPOINTS[request.param]
    artifact = compiled_artifact(config, 0, counter, **OPTIONS)
    reference = Reference(make_checkpoint(config, 0, counter), artifact, **OPTIONS)
    return artifact, [reference.answer(one) for one in REQUESTS]


def test_the_vectors_cover_what_they_should() -> None:
    assert len(REQUESTS) == 32
    assert len({len(r["prompt"]) for r in REQUESTS}) > 20
    for field in ("temperature", "top_k", "top_p", "n_logprobs", "stop_ids", "min_new_tokens", "priority"):
        assert sum(field in r for r in REQUESTS) >= 4, field


def test_python_answers_as_the_reference(artifact_and_answers: tuple[Path, list[Outcome]]) -> None:
    artifact, answers = artifact_and_answers
    assert python_answers(artifact, REQUESTS) == answers


def test_c_answers_as_the_reference(artifact_and_answers: tuple[Path, list[Outcome]], tmp_path: Path) -> None:
    artifact, answers = artifact_and_answers
    client = build(NATIVE / "c_client.c", tmp_path)
    assert c_answers(client, artifact, REQUESTS) == answers
    assert c_answers(client, artifact, REQUESTS, pages=20) == answers, "with too few pages for all at once"
