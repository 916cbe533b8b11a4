"""Memory: reserved as planned and never more, no heap allocation in a bucketed step, flat over time."""

from __future__ import annotations

import ctypes
import dataclasses
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from dsv41c.runtime.binding import StepInputs, interface
from dsv41c.runtime.load import heap_allocations, load
from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.runtime.plan.schema import State
from tests.unit.runtime.toy_artifact import identity, rows_of, upload_of, write_artifact
from tests.unit.runtime.toy_plan import BUCKETS, MAX_ROWS, toy_plan


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_artifact(tmp_path_factory.mktemp("toy") / "artifact")


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_reserved_is_planned_and_stays_so(artifact: Path) -> None:
    with load(artifact) as runtime:
        planned = toy_plan().memory.total_bytes
        before = runtime.report()
        assert (before["planned_bytes"], before["reserved_bytes"]) == (planned, planned)
        assert sum(before["memory"].values()) == planned
        rows = identity(2 * BUCKETS[-1])
        assert len(rows) == MAX_ROWS
        runtime.step(upload_of(rows_of(0, [1] * len(rows))), rows, rows)
        assert runtime.records()[-1].reason == "above the largest bucket"
        assert runtime.report() == before


def mapping_of(address: int) -> tuple[int, int]:
    """Begin and end of the memory mapping around the address."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        begin, end = (int(part, 16) for part in line.split()[0].split("-"))
        if begin <= address < end:
            return begin, end
    raise AssertionError(hex(address))


def test_reserved_is_what_the_process_holds(artifact: Path) -> None:
    with load(artifact) as runtime:
        begin = runtime.state(toy_plan().state[0].name).ctypes.data
        reserved = runtime.report()["reserved_bytes"]
        assert begin + reserved <= mapping_of(begin)[1]


def test_untouched_state_takes_no_memory(tmp_path: Path) -> None:
    """Memory is reserved as addresses: a large state that starts as zeros costs nothing until it is used."""
    plan = toy_plan()
    extra, offset = 1 << 30, plan.memory.state_bytes
    cache = State("cache", "uint8", (extra,), offset, 0)
    memory = dataclasses.replace(plan.memory, state_bytes=offset + extra,
                                 total_bytes=plan.memory.total_bytes + extra)
    large = write_artifact(tmp_path / "a", dataclasses.replace(plan, memory=memory, state=(*plan.state, cache)))
    before = resident_bytes()
    with load(large) as runtime:
        assert runtime.report()["reserved_bytes"] > extra
        assert resident_bytes() - before < extra // 8
        view = runtime.state("cache")
        assert not view[:: 1 << 24].any() and not view[-1]


def test_report_counts_launches_and_what_aten_allocates(artifact: Path) -> None:
    with load(artifact) as runtime:
        report = runtime.report()
    assert report["methods"]["decode"]["launches"] == {"cpu": 3, "aten": 2}
    assert report["methods"]["decode"]["kernels"] == {"cpu": 3, "aten": 2}
    assert report["aten"]["decode"]["allocations"] > 0  # mean.out allocates; the number may only shrink
    assert report["aten"]["encoder"] == {"rows": 1, "allocations": 0, "bytes": 0}
    assert report["limits"] == {"slots": 3, "pages": 8, "pages_per_slot": 4, "block_size": 8, "positions": 28,
                                "vocabulary": 24}
    assert 0 < report["seconds"] < 60


def test_warm_up_leaves_the_state_as_filled(artifact: Path) -> None:
    with load(artifact) as runtime:
        for entry in toy_plan().state:
            assert np.all(runtime.state(entry.name) == entry.fill)


def test_bucketed_step_makes_no_heap_allocation(artifact: Path) -> None:
    with load(artifact) as runtime:
        decode, rows = upload_of(rows_of(0, [1, 2, 3])), identity(3)
        split = upload_of(rows_of(0, [1, 2, 3]), rows_of(1, [4, 5]))
        before = heap_allocations()
        runtime.step(decode, rows, rows)
        runtime.step(split, identity(5), np.array([2, 4], np.int32))
        assert heap_allocations() == before


@pytest.mark.parametrize("eager", [False, True])
def test_step_enters_no_python_frame(artifact: Path, eager: bool) -> None:
    with load(artifact) as runtime:
        upload, rows, handle = upload_of(rows_of(0, [1, 2, 3])), identity(3), runtime._open_handle
        inputs = StepInputs(upload.ctypes.data, 3, rows.ctypes.data, 3, rows.ctypes.data, 3, eager, 0)
        step, reference, frames = interface().step, ctypes.byref(inputs), []
        sys.setprofile(lambda frame, event, _: frames.append(event) if event == "call" else None)
        status = step(handle, reference, None)
        sys.setprofile(None)
        assert (status, frames) == (0, [])


def test_eager_step_shows_that_the_counter_counts(artifact: Path) -> None:
    with load(artifact) as runtime:
        before = heap_allocations()
        runtime.step(upload_of(rows_of(0, [1, 2, 3])), identity(3), identity(3), eager=True)
        assert heap_allocations() > before


@pytest.mark.parametrize("eager", [False, True])
def test_resident_memory_is_flat_over_a_thousand_steps(artifact: Path, eager: bool) -> None:
    with load(artifact) as runtime:
        upload, rows = upload_of(rows_of(0, [1, 2, 3])), identity(3)
        for _ in range(200):
            runtime.step(upload, rows, rows, eager)
        before = resident_bytes()
        for _ in range(1000):
            runtime.step(upload, rows, rows, eager)
        assert resident_bytes() - before < 1 << 20


def test_loading_many_times_leaks_nothing(artifact: Path) -> None:
    for _ in range(20):
        load(artifact).close()
    before = resident_bytes()
    for _ in range(100):
        load(artifact).close()
    assert resident_bytes() - before < 2 << 20


def test_reservation_that_the_machine_cannot_give_is_an_error(tmp_path: Path) -> None:
    plan = toy_plan()
    huge = 1 << 48  # more than the address space of a process
    total = plan.memory.total_bytes - plan.memory.arena_bytes + huge
    memory = dataclasses.replace(plan.memory, arena_bytes=huge, total_bytes=total)
    methods = (dataclasses.replace(plan.methods[0], arena_bytes=huge), *plan.methods[1:])
    artifact = write_artifact(tmp_path / "a", dataclasses.replace(plan, memory=memory, methods=methods))
    with pytest.raises(Dsv41cError, match="DSV41C-E0701"):
        load(artifact)
