"""StepLog: the decision records of all steps with their step and time; counters and a trace of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dsv41c.runtime.load import DecisionRecord, Runtime

PROCESS = 1


@dataclass(frozen=True)
class LoggedRun:
    """One method run. `step` counts from 0; `begin_us`: microseconds since the log began."""

    step: int
    begin_us: float
    record: DecisionRecord

    def to_json(self) -> dict[str, Any]:
        record = self.record
        return {"step": self.step, "method": record.method, "bucket": record.bucket, "rows": record.rows,
                "pad_rows": record.pad_rows, "mode": record.mode, "reason": record.reason}


@dataclass
class StepLog:
    """The runtime as a generation loop uses it, with every record kept: the runtime itself keeps the newest only. A
    step that fails leaves the runs before the failure."""

    runtime: Runtime
    clock: Callable[[], float] = time.perf_counter
    runs: list[LoggedRun] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._began = self.clock()
        self._steps = 0
        self.output = self.runtime.output
        self.rollback = self.runtime.rollback

    def step(self, upload: Any, keep_rows: Any, logit_rows: Any, eager: bool = False) -> None:
        since = self.runtime.num_records()
        try:
            self.runtime.step(upload, keep_rows, logit_rows, eager)
        finally:
            self._take(self.runtime.records(since))
            self._steps += 1

    def draft(self, upload: Any, eager: bool = False) -> None:
        """Its runs count for the step that verifies the drafts."""
        since = self.runtime.num_records()
        try:
            self.runtime.draft(upload, eager)
        finally:
            self._take(self.runtime.records(since))

    def _take(self, records: Sequence[DecisionRecord]) -> None:
        """The methods of a step run one behind another, and the last one ends with the step."""
        end = (self.clock() - self._began) * 1e6
        begins = []
        for record in reversed(records):
            end -= record.us
            begins.append(end)
        self.runs += [LoggedRun(self._steps, begin, r) for begin, r in zip(reversed(begins), records, strict=True)]


def counters(records: Sequence[DecisionRecord]) -> list[dict[str, Any]]:
    """`runs`, `rows` and `pad_rows` by method, mode and cause, in the order of their first run."""
    sums: dict[tuple[str, str, str], list[int]] = {}
    for record in records:
        entry = sums.setdefault((record.method, record.mode, record.cause), [0, 0, 0])
        for at, amount in enumerate((1, record.rows, record.pad_rows)):
            entry[at] += amount
    return [{"method": method, "mode": mode, "reason": cause, "runs": runs, "rows": rows, "pad_rows": pads}
            for (method, mode, cause), (runs, rows, pads) in sums.items()]


def chrome_trace(runs: Sequence[LoggedRun], name: str) -> dict[str, Any]:
    """Trace events as Chrome and Perfetto read them: a lane for each method, an event for each run. Times are the
    host's: on a device, of putting the launches on the stream."""
    lanes = {method: lane for lane, method in enumerate(dict.fromkeys(run.record.method for run in runs), start=1)}
    named = [_meta("process_name", 0, name), *(_meta("thread_name", lane, method) for method, lane in lanes.items())]
    events = [{"name": f"{run.record.method}@{run.record.bucket}", "cat": run.record.mode, "ph": "X",
               "ts": round(run.begin_us, 3), "dur": round(run.record.us, 3), "pid": PROCESS,
               "tid": lanes[run.record.method], "args": run.to_json()} for run in runs]
    return {"traceEvents": [*named, *events], "displayTimeUnit": "ms"}


def _meta(kind: str, lane: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": PROCESS, "tid": lane, "args": {"name": name}}
