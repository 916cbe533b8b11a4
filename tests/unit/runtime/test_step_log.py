"""StepLog: every run with its step and time, also of a step that fails; counters that add up; events for Perfetto."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv41c.runtime.load import DecisionRecord
from dsv41c.runtime.step_log import StepLog, chrome_trace, counters

RECORDS = st.builds(DecisionRecord, st.sampled_from(("decode", "encoder", "decoder")), st.integers(1, 9),
                    st.integers(1, 9), st.integers(0, 9), st.booleans(),
                    st.sampled_from(("bucket", "requested", "part 2 of 3 of a split", "requested, block 1 of 2")),
                    st.floats(0, 1000), st.integers(0, 9), st.floats(0, 1000))


class FakeRuntime:
    """Each step leaves its list of records; the upload "fails" fails behind them."""

    def __init__(self, steps: list[list[DecisionRecord]]) -> None:
        self._steps, self._records = steps, list[DecisionRecord]()

    def output(self, name: str) -> str:
        return name

    def step(self, upload: Any, keep_rows: Any, logit_rows: Any, eager: bool) -> None:
        found = self._steps.pop(0)
        self._records += found
        if upload == "fails":
            raise ValueError("a launch failed")

    def draft(self, upload: Any, eager: bool) -> None:
        self.step(upload, None, None, eager)

    def rollback(self, slots: Any, lengths: Any) -> tuple[Any, Any]:
        return slots, lengths

    def num_records(self) -> int:
        return len(self._records)

    def records(self, since: int) -> list[DecisionRecord]:
        return self._records[since:]


def record(method: str, step: int, begin_us: float = 0, us: float = 1, reason: str = "bucket",
           eager: bool = False) -> DecisionRecord:
    return DecisionRecord(method, 4, 3, 1, eager, reason, us, step, begin_us)


def log_of(steps: list[list[DecisionRecord]]) -> StepLog:
    return StepLog(FakeRuntime(steps))  # type: ignore[arg-type]


def test_every_record_of_steps_and_drafts_is_kept() -> None:
    """Also those that ran before a failure."""
    steps = [[record("encoder", 0), record("decoder", 0)], [record("draft", 1)], [record("decode", 1)],
             [record("encoder", 2)]]
    log = log_of(list(steps))
    log.step("", None, None)
    log.draft("")
    with pytest.raises(ValueError, match="a launch failed"):
        log.step("fails", None, None)
    with pytest.raises(ValueError, match="a launch failed"):
        log.draft("fails")
    assert log.records == [r for step in steps for r in step]
    assert log.output("tokens") == "tokens"
    assert log.rollback([1], [2]) == ([1], [2])


@given(st.lists(RECORDS))
def test_counters_add_up(records: list[DecisionRecord]) -> None:
    found = counters(records)
    keys = [(c["method"], c["mode"], c["reason"]) for c in found]
    assert len(set(keys)) == len(keys)
    assert Counter(dict(zip(keys, (c["runs"] for c in found), strict=True))) == Counter(
        (r.method, r.mode, r.cause) for r in records)
    for name in ("rows", "pad_rows"):
        assert sum(c[name] for c in found) == sum(getattr(r, name) for r in records)


@pytest.mark.parametrize(("reason", "cause"), [
    ("bucket", "bucket"), ("bucket, launches one by one", "bucket, launches one by one"),
    ("part 2 of 11 of a split", "split"), ("part 1 of 2 of a split, launches one by one", "split, launches one by one"),
    ("above the largest bucket", "above the largest bucket"),
    ("above the largest bucket, block 12 of 16", "above the largest bucket"), ("requested, block 1 of 2", "requested"),
])
def test_a_cause_is_a_reason_without_numbers(reason: str, cause: str) -> None:
    assert record("encoder", 1, reason=reason).cause == cause


def test_a_trace_has_a_lane_a_method_and_an_event_a_run() -> None:
    records = [record("encoder", 0, 100, 600, "above the largest bucket", True), record("decoder", 0, 700, 300),
               record("encoder", 1, 1900, 100)]
    trace = json.loads(json.dumps(chrome_trace(records, "a run")))
    named = {e["tid"]: e["args"]["name"] for e in trace["traceEvents"] if e["ph"] == "M"}
    assert named == {0: "a run", 1: "encoder", 2: "decoder"}
    events = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    assert [(e["name"], named[e["tid"]], e["cat"], e["dur"]) for e in events] == [
        ("encoder@4", "encoder", "eager", 600), ("decoder@4", "decoder", "bucketed", 300),
        ("encoder@4", "encoder", "bucketed", 100)]
    assert events[0]["args"] == {"step": 0, "method": "encoder", "bucket": 4, "rows": 3, "pad_rows": 1, "mode": "eager",
                                 "reason": "above the largest bucket"}
    assert all(a["ts"] + a["dur"] <= b["ts"] + 1e-3 for a, b in zip(events, events[1:], strict=False))
