"""The upload under checks is read when a step runs, as on a GPU, out of a ring of two slots."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dsv41c.runtime.binding import interface
from dsv41c.runtime.load import Runtime, load
from tests.unit.runtime.toy_artifact import expected_logits, identity, rows_of, upload_of, write_artifact

TOKEN = 2  # column of the upload


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_artifact(tmp_path_factory.mktemp("toy") / "artifact")


@pytest.fixture
def runtime(artifact: Path) -> Iterator[Runtime]:
    with load(artifact, check="full") as opened:
        yield opened


def staged_upload(runtime: Runtime, rows: int) -> np.ndarray:
    """The last step's upload in its slot: `decode` is the first method, so that its input comes first."""
    size = ctypes.c_int64()
    address = interface().staged_inputs(runtime._handle, ctypes.byref(size))
    assert address is not None and size.value >= rows * 5 * 4
    return np.ctypeslib.as_array((ctypes.c_int32 * (rows * 5)).from_address(address)).reshape(rows, 5)


def enqueue(runtime: Runtime, *slots: list[list[int]]) -> np.ndarray:
    upload = upload_of(*slots)
    runtime.step(upload, identity(len(upload)), identity(len(upload)))
    return upload


def close(logits: np.ndarray, tokens: list[int]) -> bool:
    return bool(np.allclose(logits, expected_logits(tokens), rtol=1e-4, atol=1e-4))


def test_a_slot_of_the_ring_that_changes_before_the_step_runs_changes_the_result(runtime: Runtime) -> None:
    enqueue(runtime, rows_of(0, [1, 2, 3]))
    staged_upload(runtime, 3)[1, TOKEN] = 7
    logits = runtime.output("logits")
    assert close(logits, [1, 7, 3]) and not close(logits, [1, 2, 3])


def test_a_slot_that_changes_after_the_step_has_run_changes_nothing(runtime: Runtime) -> None:
    enqueue(runtime, rows_of(0, [1, 2, 3]))
    runtime.synchronize()
    staged_upload(runtime, 3)[1, TOKEN] = 7
    assert close(runtime.output("logits"), [1, 2, 3])


def test_the_callers_arrays_are_free_when_the_call_returns(runtime: Runtime) -> None:
    upload, rows, wanted = upload_of(rows_of(0, [1, 2, 3])), identity(3), identity(3)
    runtime.step(upload, rows, wanted)
    upload[:], rows[:], wanted[:] = 23, 0, 0
    assert close(runtime.output("logits"), [1, 2, 3])


def test_the_ring_waits_for_its_slot(runtime: Runtime) -> None:
    """Three steps without waiting: the third takes the first's slot, which has then been read."""
    enqueue(runtime, rows_of(0, [1, 2]))
    first = staged_upload(runtime, 2)
    enqueue(runtime, rows_of(0, [3, 4], base=2), rows_of(1, [5]))
    second = staged_upload(runtime, 3)
    assert first.ctypes.data != second.ctypes.data and (first[:, TOKEN] == [1, 2]).all()
    enqueue(runtime, rows_of(0, [6], base=4), rows_of(1, [7, 8], base=1))
    assert staged_upload(runtime, 3).ctypes.data == first.ctypes.data
    assert close(runtime.output("logits"), [6, 7, 8])
    assert runtime.state("slot_position")[:2].tolist() == [5, 3]


def test_without_checks_nothing_is_staged(artifact: Path) -> None:
    with load(artifact, check="off") as plain:
        enqueue(plain, rows_of(0, [1, 2]))
        assert interface().staged_inputs(plain._handle, None) is None
