"""Steps with more rows than a run may have: blocks of rows give the bits of single rows and of the eager model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dsv41c.compiler.options import CompileOptions
from dsv41c.runtime.load import DecisionRecord
from dsv41c.runtime.plan.codec import decode
from laws.engines import CHECKED, EXECUTORS, Engine, ExecutorEngine, Subject
from laws.schedules import Outcome, Workload, requests, run_workload, schedules

TOP, BLOCK_ROWS, ROWS, SLOTS, BLOCK = 4, 7, 45, 45, 4  # a full step takes seven blocks; a window is 8 rows
TOKENS = tuple((5 * i + 3) % 96 for i in range(ROWS))


def options_of(dtype: str, quantizers: str, rows: int = ROWS) -> dict[str, Any]:
    return {"dtype": dtype, "quantizers": quantizers, "max_model_len": 64, "max_num_seqs": SLOTS,
            "max_num_batched_tokens": rows, "block_size": BLOCK, "bucket_policy": "explicit",
            "buckets": ("decode=1", f"encoder=1,{TOP}", f"decoder=1,2,{TOP}", "head=1,45"),
            "max_eager_rows": BLOCK_ROWS}


@pytest.fixture(scope="module", params=["float32-off", "bfloat16-fake"])
def subject(request: pytest.FixtureRequest, tiny_checkpoint: Path, compiled_artifact: Callable[..., Path],
            tmp_path_factory: pytest.TempPathFactory) -> Subject:
    options = options_of(*request.param.split("-"))
    return Subject.without_decode(tiny_checkpoint, compiled_artifact("tiny", 0, **options),
                                  tmp_path_factory.mktemp("blocks") / "artifact", CompileOptions(**options))


@pytest.fixture(scope="module")
def engines(subject: Subject) -> dict[str, ExecutorEngine]:
    return {kind: subject.executor(kind) for kind in (*EXECUTORS, CHECKED)}


def run(engine: Engine, workload: Workload, subject: Subject) -> Outcome:
    names = tuple(subject.torch_engine().model.state)
    return run_workload(engine, workload, BLOCK, subject.options.pages_per_slot, names)


def records(engine: ExecutorEngine, workload: Workload, subject: Subject) -> list[DecisionRecord]:
    since = engine.runtime.num_records()
    run(engine, workload, subject)
    return engine.runtime.records(since)


def same(left: Outcome, right: Outcome) -> bool:
    return left.logits == right.logits and left.state == right.state


@pytest.mark.parametrize("total", [TOP, TOP + 1, BLOCK_ROWS, BLOCK_ROWS + 1, 2 * BLOCK_ROWS, 3 * BLOCK_ROWS + 2, ROWS])
def test_any_total_equals_the_eager_model_and_single_rows(engines: dict[str, ExecutorEngine], subject: Subject,
                                                          total: int) -> None:
    whole = Workload((TOKENS[:total],), (3,), (((0, total),),))
    single = Workload(whole.tokens, whole.slots, (((0, 1),),) * total)
    expected = run(subject.torch_engine(), whole, subject)
    for kind in (*EXECUTORS, CHECKED):
        assert same(run(engines[kind], whole, subject), expected), kind
    assert same(run(engines["bucketed"], single, subject), expected)


@pytest.mark.parametrize(("kind", "reason"), [("bucketed", "above the largest bucket"), ("exact", "requested")])
def test_the_records_say_why_and_which_block(engines: dict[str, ExecutorEngine], subject: Subject, kind: str,
                                             reason: str) -> None:
    total = 2 * BLOCK_ROWS + 3
    found = records(engines[kind], Workload((TOKENS[:total],), (1,), (((0, total),),)), subject)
    encoder = [r for r in found if r.method == "encoder"]
    assert [(r.rows, r.bucket, r.pad_rows, r.mode) for r in encoder] == [
        (rows, rows, 0, "eager") for rows in (BLOCK_ROWS, BLOCK_ROWS, 3)]
    assert [r.reason for r in encoder] == [f"{reason}, block {i} of 3" for i in (1, 2, 3)]
    decoder = [r.reason for r in found if r.method == "decoder"]
    parts, text = (3, "requested, block {} of {}") if kind == "exact" else (5, "part {} of {} of a split")
    assert decoder == [text.format(i + 1, parts) for i in range(parts)]
    one = records(engines[kind], Workload((TOKENS[:BLOCK_ROWS],), (1,), (((0, BLOCK_ROWS),),)), subject)
    assert [r.reason for r in one if r.method == "encoder"] == [reason]


@settings(max_examples=10, deadline=None, derandomize=False, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_ragged_steps_of_several_requests_give_the_same_bits(engines: dict[str, ExecutorEngine], subject: Subject,
                                                             data: st.DataObject) -> None:
    """Blocks end anywhere in a request, and begin with rows of one that an earlier block has begun."""
    tokens = data.draw(requests(subject.view.config.vocab_size))
    one, other = (data.draw(schedules(tokens, SLOTS, ROWS)) for _ in range(2))
    expected = run(subject.torch_engine(), one, subject)
    for kind, workload in (("bucketed", one), ("bucketed", other), ("exact", one), ("poisoned", other)):
        assert same(run(engines[kind], workload, subject), expected), f"{kind} differs from the eager model"


def test_another_token_in_the_first_block_is_noticed(engines: dict[str, ExecutorEngine], subject: Subject) -> None:
    """The comparison can fail: rows of later blocks read what the first one left in the windows."""
    changed = (TOKENS[0] + 1, *TOKENS[1:])
    whole = (((0, ROWS),),)
    one, other = (run(engines["bucketed"], Workload((t,), (3,), whole), subject) for t in (TOKENS, changed))
    assert one.logits[0, ROWS - 1] != other.logits[0, ROWS - 1] and not same(one, other)


def test_memory_is_planned_for_one_block(compiled_artifact: Callable[..., Path]) -> None:
    """Arenas of a step that is ten times as long are the same; bridges hold all of its rows."""
    artifacts = [compiled_artifact("tiny", 0, **options_of("float32", "off", rows)) for rows in (ROWS, 10 * ROWS)]
    short, long = (decode((artifact / "plan.json").read_bytes()) for artifact in artifacts)
    assert [m.arena_bytes for m in short.methods] == [m.arena_bytes for m in long.methods]
    assert [m.ladder.block_rows for m in long.methods] == [0, BLOCK_ROWS, BLOCK_ROWS, 0]
    assert long.memory.bridge_bytes > 9 * short.memory.bridge_bytes


def test_the_reservation_is_what_was_planned(engines: dict[str, ExecutorEngine]) -> None:
    report = engines["bucketed"].runtime.report()
    encoder = report["methods"]["encoder"]
    assert (encoder["run_rows"], encoder["max_rows"]) == (BLOCK_ROWS, ROWS)
    assert report["reserved_bytes"] == report["planned_bytes"]
