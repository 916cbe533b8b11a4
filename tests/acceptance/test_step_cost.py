"""What a step may not do: run Python, allocate on our heap, or change the memory that was planned."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

from dsv41c.compiler.eager import request_rows
from dsv41c.compiler.options import CompileOptions
from dsv41c.runtime.load import Runtime, heap_allocations, load

OPTIONS: dict[str, Any] = {"dtype": "bfloat16", "quantizers": "fake", "max_num_batched_tokens": 64,
                           "max_model_len": 256, "bucket_policy": "explicit", "buckets": ("encoder=1,2,3,4,8,16,32",)}


@pytest.fixture(params=["tiny", "demo"])
def artifact(request: pytest.FixtureRequest, compiled_artifact: Callable[..., Path]) -> Path:
    return compiled_artifact(request.param, 0, **OPTIONS)


def prefill(runtime: Runtime, num_rows: int) -> tuple[Any, ...]:
    rows = request_rows(0, [5] * num_rows, 0, CompileOptions(**OPTIONS))
    runtime.step(rows, np.arange(num_rows, dtype=np.int32), np.array([num_rows - 1], dtype=np.int32))
    one = np.zeros(1, dtype=np.int32)
    return request_rows(0, [5], num_rows, CompileOptions(**OPTIONS)), one, one


def test_a_bucketed_step_runs_no_python_and_allocates_nothing_of_ours(artifact: Path) -> None:
    """Between the call into C and its return the profiler sees no Python frame, and our heap counter stands still."""
    frames: list[str] = []

    def hook(frame: FrameType, event: str, argument: Any) -> None:
        frames.append(f"{event} {getattr(argument, '__name__', frame.f_code.co_name)}")

    with load(artifact) as runtime:
        step = prefill(runtime, 30)
        runtime.step(*step)
        step[0][:, 2] = 6
        before = heap_allocations()
        sys.setprofile(hook)
        try:
            runtime.step(*step)
        finally:
            sys.setprofile(None)
        assert heap_allocations() == before
        assert runtime.records()[-1].mode == "bucketed"
    # ctypes' foreign call is a C call without frames of its own: everything the hook saw lies around it.
    inside = [f for f in frames if "torch" in f or "generate" in f]
    assert inside == []
    calls = [f for f in frames if f.startswith("call ")]
    assert len(calls) <= 12, calls


def test_the_number_of_python_frames_does_not_depend_on_the_work(compiled_artifact: Callable[..., Path]) -> None:
    """A step of 1 row on tiny and one of 60 rows on demo enter the same number of Python frames."""
    counts = []
    for config, num_rows in (("tiny", 1), ("demo", 60)):
        with load(compiled_artifact(config, 0, **OPTIONS)) as runtime:
            seen: list[str] = []
            rows = request_rows(0, [5] * num_rows, 0, CompileOptions(**OPTIONS))
            lists = np.arange(num_rows, dtype=np.int32), np.array([num_rows - 1], dtype=np.int32)
            sys.setprofile(lambda frame, event, argument: seen.append(event))  # noqa: B023
            try:
                runtime.step(rows, *lists)
            finally:
                sys.setprofile(None)
            counts.append(seen.count("call"))
    assert counts[0] == counts[1]


def test_the_load_report_states_what_aten_allocates(artifact: Path) -> None:
    with load(artifact) as runtime:
        aten = runtime.report()["aten"]
    assert set(aten) == {"decode", "encoder", "decoder", "head"}
    assert all(m["allocations"] >= 0 and m["bytes"] >= 0 for m in aten.values())
    assert aten["decode"]["allocations"] > 0  # means keep a small buffer inside ATen: stated, not hidden


def test_reserved_bytes_are_planned_bytes_and_stay(artifact: Path) -> None:
    """A step of twice the largest bucket runs eagerly in the same reservation."""
    with load(artifact) as runtime:
        before = runtime.report()
        assert before["planned_bytes"] == before["reserved_bytes"] == sum(before["memory"].values())
        largest = before["methods"]["encoder"]["buckets"][-1]
        prefill(runtime, 2 * largest)
        record = runtime.records()[0]
        assert (record.method, record.rows, record.mode) == ("encoder", 2 * largest, "eager")
        assert record.reason == "above the largest bucket"
        after = runtime.report()
    assert (after["planned_bytes"], after["reserved_bytes"]) == (before["planned_bytes"], before["reserved_bytes"])
