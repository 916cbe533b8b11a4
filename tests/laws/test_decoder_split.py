"""A decoder that is split into several replays gives the bits of one eager run and of steps cut in any other way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dsv41c.compiler.options import CompileOptions
from dsv41c.runtime.load import DecisionRecord
from laws.engines import CHECKED, EXECUTORS, ExecutorEngine, Subject
from laws.schedules import Outcome, Workload, requests, run_workload, schedules

TOP, ROWS, SLOTS, BLOCK = 9, 45, 45, 4  # a full step takes five replays of the decoder
TOKENS = tuple((5 * i + 3) % 96 for i in range(ROWS))


@pytest.fixture(scope="module", params=["float32-off", "bfloat16-fake"])
def subject(request: pytest.FixtureRequest, tiny_checkpoint: Path, compiled_artifact: Callable[..., Path],
            tmp_path_factory: pytest.TempPathFactory) -> Subject:
    dtype, quantizers = request.param.split("-")
    options = {"dtype": dtype, "quantizers": quantizers, "max_model_len": 64, "max_num_seqs": SLOTS,
               "max_num_batched_tokens": ROWS, "block_size": BLOCK, "bucket_policy": "explicit",
               "buckets": ("decode=1", "encoder=1,8,45", f"decoder=1,2,5,{TOP}", "head=1,45")}
    return Subject.without_decode(tiny_checkpoint, compiled_artifact("tiny", 0, **options),
                                  tmp_path_factory.mktemp("split") / "artifact", CompileOptions(**options))


@pytest.fixture(scope="module")
def engines(subject: Subject) -> dict[str, ExecutorEngine]:
    return {kind: subject.executor(kind) for kind in EXECUTORS}


def run(engine: ExecutorEngine, workload: Workload, subject: Subject) -> tuple[Outcome, list[DecisionRecord]]:
    """What came out, and the records of the decoder."""
    since = engine.runtime.num_records()
    names = tuple(subject.torch_engine().model.state)
    outcome = run_workload(engine, workload, BLOCK, subject.options.pages_per_slot, names)
    return outcome, [r for r in engine.runtime.records(since) if r.method == "decoder"]


def same(left: Outcome, right: Outcome) -> bool:
    return left.logits == right.logits and left.state == right.state


@pytest.mark.parametrize("total", [TOP - 1, TOP, TOP + 1, 2 * TOP - 1, 2 * TOP, 2 * TOP + 3, 3 * TOP, 4 * TOP - 4,
                                   ROWS])
def test_any_total_equals_the_eager_run_and_single_rows(engines: dict[str, ExecutorEngine], subject: Subject,
                                                        total: int) -> None:
    """One request of every number of replays, logits of all rows: against one eager run and against a step a row."""
    whole = Workload((TOKENS[:total],), (3,), (((0, total),),))
    rows = Workload(whole.tokens, whole.slots, (((0, 1),),) * total)
    (split, records), (exact, eager), (single, _) = (
        run(engines[kind], w, subject) for kind, w in (("bucketed", whole), ("exact", whole), ("bucketed", rows)))
    parts = -(-total // TOP)
    assert [r.rows for r in records] == [total - (parts - 1) * TOP] + [TOP] * (parts - 1)
    assert [r.mode for r in records] == ["bucketed"] * parts
    if parts > 1:
        assert [r.reason for r in records] == [f"part {i + 1} of {parts} of a split" for i in range(parts)]
    assert [(r.rows, r.reason) for r in eager] == [(total, "requested")]
    assert same(split, exact) and same(split, single)


def test_full_checks_trap_nothing(engines: dict[str, ExecutorEngine], subject: Subject) -> None:
    whole = Workload((TOKENS[: 2 * TOP + 3],), (3,), (((0, 2 * TOP + 3),),))
    checked, records = run(subject.executor(CHECKED), whole, subject)
    exact, _ = run(engines["exact"], whole, subject)
    assert len(records) == 3 and same(checked, exact)


@settings(max_examples=10, deadline=None, derandomize=False, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_ragged_steps_of_several_requests_give_the_same_bits(engines: dict[str, ExecutorEngine], subject: Subject,
                                                             data: st.DataObject) -> None:
    """Cuts go through requests anywhere; what a poisoned arena or an earlier example left behind does not matter."""
    tokens = data.draw(requests(subject.view.config.vocab_size))
    one, other = (data.draw(schedules(tokens, SLOTS, ROWS)) for _ in range(2))
    expected, _ = run(engines["exact"], one, subject)
    for kind, workload in (("bucketed", one), ("bucketed", other), ("poisoned", one)):
        found, records = run(engines[kind], workload, subject)
        assert same(expected, found), f"{kind} differs from eager"
        assert all(r.bucket <= TOP and r.mode == "bucketed" for r in records)


def test_another_token_in_the_first_part_is_noticed(engines: dict[str, ExecutorEngine], subject: Subject) -> None:
    """The comparison can fail: rows of later parts read what the first part left in the windows."""
    changed = (TOKENS[0] + 1, *TOKENS[1:])
    whole = (((0, ROWS),),)
    one, other = (run(engines["bucketed"], Workload((t,), (3,), whole), subject)[0] for t in (TOKENS, changed))
    assert one.logits[0, ROWS - 1] != other.logits[0, ROWS - 1] and not same(one, other)
