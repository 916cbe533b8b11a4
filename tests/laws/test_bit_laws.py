"""Bit laws: how rows are batched, ordered, chunked, bucketed and padded changes no bit of a row or of live state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dsv41c.compiler.options import CompileOptions
from laws.engines import CHECKED, EXECUTORS, Subject
from laws.schedules import Outcome, Workload, requests, run_workload, schedules

NUMERICS = [(d, q) for d in ("float32", "bfloat16") for q in ("off", "fake")]
SLOTS, ROWS = 48, 64
BUCKETS = ("decode=1,2,3,4,6,8,12,16,24,32",)  # some steps are larger and run eagerly in every mode


@pytest.fixture(scope="module", params=NUMERICS, ids="-".join)
def subject(request: pytest.FixtureRequest, tiny_checkpoint: Path, compiled_artifact: Callable[..., Path]) -> Subject:
    dtype, quantizers = request.param
    options = {"dtype": dtype, "quantizers": quantizers, "max_model_len": 64, "max_num_seqs": SLOTS,
               "max_num_batched_tokens": ROWS, "block_size": 4, "bucket_policy": "explicit", "buckets": BUCKETS}
    return Subject.build(tiny_checkpoint, compiled_artifact("tiny", 0, **options), CompileOptions(**options))


@pytest.fixture(scope="module")
def engines(subject: Subject) -> dict[str, object]:
    return {"torch": subject.torch_engine()} | {kind: subject.executor(kind) for kind in (*EXECUTORS, CHECKED)}


def differing(left: Outcome, right: Outcome) -> list[object]:
    """Keys whose bytes differ, the earliest positions first."""
    assert left.logits.keys() == right.logits.keys() and left.state.keys() == right.state.keys()
    rows = [key for key in sorted(left.logits) if left.logits[key] != right.logits[key]]
    return rows + [key for key in sorted(left.state) if left.state[key] != right.state[key]]


@settings(max_examples=12, deadline=None, derandomize=False, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_schedule_on_any_engine_gives_the_same_bits(subject: Subject, engines: dict[str, object],
                                                        data: st.DataObject) -> None:
    """Two schedules of the same requests, on eager torch and on the executor in every mode, agree in every byte
    of every row's logits and of every live slot's state."""
    tokens = data.draw(requests(subject.view.config.vocab_size))
    first = data.draw(schedules(tokens, SLOTS, SLOTS))
    second = data.draw(schedules(tokens, SLOTS, SLOTS))
    names = tuple(engines["torch"].model.state)  # type: ignore[attr-defined]
    run = lambda engine, w: run_workload(engine, w, 4, subject.options.pages_per_slot, names)  # noqa: E731
    expected = run(engines["torch"], first)
    cases = [("torch", second), (CHECKED, second)] + [(kind, w) for kind in EXECUTORS for w in (first, second)]
    for kind, workload in cases:
        assert differing(expected, run(engines[kind], workload)) == [], f"{kind} differs from eager torch"


def test_a_changed_token_is_noticed(subject: Subject, engines: dict[str, object]) -> None:
    """The comparison itself can fail: another token at position 3 changes rows from 3 on and none before."""
    tokens = tuple(range(10, 20))
    changed = tokens[:3] + (55,) + tokens[4:]
    outcomes = [run_workload(engines["bucketed"], Workload((t,), (5,), (((0, 10),),)), 4,  # type: ignore[arg-type]
                             subject.options.pages_per_slot, ("window_0",)) for t in (tokens, changed)]
    found = differing(*outcomes)
    assert (0, 2) not in found and (0, 3) in found and (0, "window_0") in found
