"""StepLog: the decision records of all steps; counters and a trace of records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dsv41c.runtime.load import DecisionRecord, Runtime

PROCESS = 1


@dataclass
class StepLog:
    """The runtime as a generation loop uses it, with every record kept: the runtime itself keeps the newest only. A
    step that fails leaves the runs before the failure."""

    runtime: Runtime
    records: list[DecisionRecord] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.output = self.runtime.output
        self.rollback = self.runtime.rollback

    def step(self, upload: Any, keep_rows: Any, logit_rows: Any, eager: bool = False) -> None:
        since = self.runtime.num_records()
        try:
            self.runtime.step(upload, keep_rows, logit_rows, eager)
        finally:
            self.records += self.runtime.records(since)

    def draft(self, upload: Any, eager: bool = False) -> None:
        since = self.runtime.num_records()
        try:
            self.runtime.draft(upload, eager)
        finally:
            self.records += self.runtime.records(since)


def counters(records: Sequence[DecisionRecord]) -> list[dict[str, Any]]:
    """`runs`, `rows` and `pad_rows` by method, mode and cause, in the order of their first run."""
    sums: dict[tuple[str, str, str], list[int]] = {}
    for record in records:
        entry = sums.setdefault((record.method, record.mode, record.cause), [0, 0, 0])
        for at, amount in enumerate((1, record.rows, record.pad_rows)):
            entry[at] += amount
    return [{"method": method, "mode": mode, "reason": cause, "runs": runs, "rows": rows, "pad_rows": pads}
            for (method, mode, cause), (runs, rows, pads) in sums.items()]


def chrome_trace(records: Sequence[DecisionRecord], name: str) -> dict[str, Any]:
    """Trace events as Chrome and Perfetto read them: a lane for each method, an event for each run. Times are the
    host's: on a device, of putting the launches on the stream."""
    lanes = {method: lane for lane, method in enumerate(dict.fromkeys(r.method for r in records), start=1)}
    named = [_meta("process_name", 0, name), *(_meta("thread_name", lane, method) for method, lane in lanes.items())]
    events = [{"name": f"{r.method}@{r.bucket}", "cat": r.mode, "ph": "X", "ts": round(r.begin_us, 3),
               "dur": round(r.us, 3), "pid": PROCESS, "tid": lanes[r.method], "args": r.to_json()} for r in records]
    return {"traceEvents": [*named, *events], "displayTimeUnit": "ms"}


def _meta(kind: str, lane: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": PROCESS, "tid": lane, "args": {"name": name}}
