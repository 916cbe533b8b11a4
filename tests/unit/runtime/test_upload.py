"""Bad step inputs: every rule of the upload names its row and field, and no state changes."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dsv41c.runtime.binding import StepInputs, interface
from dsv41c.runtime.load import Runtime, load
from dsv41c.runtime.plan.errors import Dsv41cError
from tests.unit.runtime.toy_artifact import identity, rows_of, upload_of, write_artifact
from tests.unit.runtime.toy_plan import MAX_ROWS, PAGES, SLOTS, VOCAB

SLOT, OFFSET, TOKEN, FLAGS, PAGE = range(5)


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    with load(write_artifact(tmp_path_factory.mktemp("toy") / "artifact")) as opened:
        upload = upload_of(rows_of(0, [1, 2]), rows_of(1, [3, 4]))
        opened.step(upload, identity(4), identity(4))
        yield opened


def refused(
    runtime: Runtime, upload: np.ndarray, keep: np.ndarray | None = None, logits: np.ndarray | None = None
) -> Dsv41cError:
    names = ("slot_position", "slot_token", "page_table")
    before = [runtime.state(name).tobytes() for name in names]
    records = runtime.num_records()
    rows = identity(len(upload))
    with pytest.raises(Dsv41cError) as failure:
        runtime.step(upload, rows if keep is None else keep, rows if logits is None else logits)
    assert failure.value.code == "DSV41C-E0801"
    assert [runtime.state(name).tobytes() for name in names] == before
    assert runtime.num_records() == records
    return failure.value


@pytest.mark.parametrize(("row", "column", "value", "field", "needed"), [
    (1, SLOT, SLOTS, "SLOT", "below 3"),
    (0, SLOT, -1, "SLOT", "at least 0"),
    (2, OFFSET, 0, "OFFSET", "2, its index among the rows of slot 0"),
    (1, OFFSET, 5, "OFFSET", "1, its index"),
    (1, TOKEN, VOCAB, "TOKEN", "below 24"),
    (1, TOKEN, -2, "TOKEN", "at least -1"),
    (1, PAGE, PAGES, "PAGE", "below 8"),
    (1, PAGE, -2, "PAGE", "at least -1"),
    (1, FLAGS, 4, "FLAGS", "the executor adds pad rows itself"),
])
def test_bad_field_is_named(
    runtime: Runtime, row: int, column: int, value: int, field: str, needed: str
) -> None:
    upload = upload_of(rows_of(0, [1, 2, 3], base=2))
    upload[row, column] = value
    error = refused(runtime, upload)
    assert error.subject == f"upload row {row}, field {field}"
    assert error.found == str(value)
    assert needed in error.needed


def test_rows_of_a_slot_lie_together(runtime: Runtime) -> None:
    mixed = (rows_of(0, [1], base=2), rows_of(1, [1], base=2), rows_of(0, [1], base=2))
    error = refused(runtime, upload_of(*mixed))
    assert error.subject == "upload row 2, field SLOT"


def test_start_inside_a_slots_rows(runtime: Runtime) -> None:
    upload = upload_of(rows_of(0, [1, 2], base=2))
    upload[1, FLAGS] = 1
    assert refused(runtime, upload).subject == "upload row 1, field FLAGS"


def test_device_side_token_that_is_not_there(runtime: Runtime) -> None:
    assert "slot 2 holds no token yet" in refused(runtime, upload_of(rows_of(2, [-1]))).needed


def test_position_without_a_page(runtime: Runtime) -> None:
    upload = upload_of(rows_of(0, [1] * 8, base=2))
    upload[:, PAGE] = -1
    error = refused(runtime, upload)
    assert error.subject == "upload row 6, field PAGE"
    assert "position 8 of slot 0 has none mapped yet" in error.needed


def test_position_beyond_the_model_length(tmp_path_factory: pytest.TempPathFactory) -> None:
    with load(write_artifact(tmp_path_factory.mktemp("toy") / "artifact")) as runtime:
        for base in (0, 14):
            runtime.step(upload_of(rows_of(0, [1] * 14, base=base)), identity(14), identity(14))
        error = refused(runtime, upload_of(rows_of(0, [1], base=28)))
    assert "positions below 28; slot 0 would reach position 28" in error.needed


def test_more_rows_than_the_bound(runtime: Runtime) -> None:
    upload = upload_of(rows_of(2, [1] * (MAX_ROWS + 1)))
    error = refused(runtime, upload)
    assert error.found == "17 rows, 17 kept, 17 with logits"
    assert "decode: at most 16 rows" in error.needed


def test_empty_step(runtime: Runtime) -> None:
    assert refused(runtime, np.zeros((0, 5), np.int32)).subject == "upload"


@pytest.mark.parametrize(("keep", "logits", "subject"), [
    ([0, 4], [], "keep_rows entry 1"),
    ([1, 0], [], "keep_rows entry 1"),
    ([-1], [], "keep_rows entry 0"),
    ([0, 1, 2, 3], [4], "logit_rows entry 0"),
    ([0, 1, 2, 3], [1, 1], "logit_rows entry 1"),
])
def test_bad_row_lists(runtime: Runtime, keep: list[int], logits: list[int], subject: str) -> None:
    upload = upload_of(rows_of(0, [1, 2, 3], base=2), rows_of(1, [1], base=2))
    error = refused(runtime, upload, np.array(keep, np.int32), np.array(logits, np.int32))
    assert error.subject == subject


@pytest.mark.parametrize(("shape", "dtype"), [((1, 5), np.int64), ((1, 4), np.int32), ((5,), np.int32)])
def test_upload_of_another_form(runtime: Runtime, shape: tuple[int, ...], dtype: type) -> None:
    upload = np.zeros(shape, dtype)
    with pytest.raises(Dsv41cError, match="int32 \\[n, 5\\]"):
        runtime.step(upload, identity(1), identity(1))


@pytest.mark.parametrize("keep", [[], [0], [2, 3], [0, 2], [0, 1, 2]])
def test_decoder_runs_on_every_row(runtime: Runtime, keep: list[int]) -> None:
    """A slot's decoder window holds what the slot's last request left there, wherever the decoder skipped a row."""
    upload = upload_of(rows_of(0, [1, 2, 3], base=2), rows_of(1, [1], base=2))
    error = refused(runtime, upload, np.array(keep, np.int32), np.zeros(0, np.int32))
    assert (error.subject, error.found) == ("keep_rows", f"{len(keep)} of 4 rows")
    assert "--suffix-mode off" in error.needed


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Runtime]:
    with load(write_artifact(tmp_path / "artifact")) as opened:
        upload = upload_of(rows_of(0, [1, 2]), rows_of(1, [3, 4]))
        opened.step(upload, identity(4), identity(4))
        yield opened


BAD_STATE = [("slot_position", value) for value in (-1, -(2**31), 29, 2**31 - 1)] + [
    ("slot_token", value) for value in (-2, VOCAB, 2**31 - 1)] + [
    ("page_table", value) for value in (-1, PAGES + 1, 2**31 - 1)]


@pytest.mark.parametrize(("name", "value"), BAD_STATE)
def test_state_that_no_step_could_use_is_not_written(fresh: Runtime, name: str, value: int) -> None:
    before = fresh.state(name).copy()
    garbage = before.copy()
    garbage.flat[1] = value
    with pytest.raises(Dsv41cError, match="DSV41C-E0801") as failure:
        fresh.write_state(name, garbage)
    assert (failure.value.subject, failure.value.found) == (f"state {name}, element 1", str(value))
    assert np.array_equal(fresh.state(name), before)


@pytest.mark.parametrize(("name", "value"), BAD_STATE)
def test_garbage_in_the_state_is_an_error_of_the_step(fresh: Runtime, name: str, value: int) -> None:
    """The host has the executor's own memory in its hands."""
    fresh.state(name)[1] = value
    upload = upload_of([[1, 0, -1, 0, -1]])
    error = refused(fresh, upload)
    assert str(value) in error.found + error.needed


@pytest.mark.parametrize(("shape", "dtype"), [
    ((4,), np.int64), ((4,), np.float32), ((2, 2), np.int32), ((3,), np.int32)])
def test_state_of_another_form_is_not_written(fresh: Runtime, shape: tuple[int, ...], dtype: type) -> None:
    with pytest.raises(Dsv41cError, match="DSV41C-E0801") as failure:
        fresh.write_state("slot_position", np.zeros(shape, dtype))
    assert failure.value.needed == "int32 [4]"


def test_started_slot_has_no_page_of_its_last_request(fresh: Runtime) -> None:
    upload = upload_of(rows_of(0, [5]))
    upload[0, PAGE] = -1
    error = refused(fresh, upload)
    assert error.subject == "upload row 0, field PAGE" and "the slot starts" in error.needed
    both = upload_of(rows_of(0, list(range(9))))
    both[8, PAGE] = -1
    assert refused(fresh, both).subject == "upload row 8, field PAGE"


@pytest.mark.parametrize("maps", [False, True])
def test_page_of_two_slots(fresh: Runtime, maps: bool) -> None:
    """Whether the other slot maps the page in this step or has it from an earlier one, and in either order."""
    other = rows_of(0, [5]) if maps else rows_of(0, [5], base=2)
    thief = rows_of(2, [5])
    thief[0][PAGE] = int(fresh.state("page_table")[0, 0])
    for parts in ((other, thief), (thief, other)):
        error = refused(fresh, upload_of(*parts))
        assert error.subject == "upload row 1, field PAGE" and "already holds positions of slot" in error.needed


def test_page_twice_in_a_slot(fresh: Runtime) -> None:
    upload = upload_of(rows_of(2, list(range(9))))
    upload[8, PAGE] = upload[0, PAGE]
    assert refused(fresh, upload).subject == "upload row 8, field PAGE"


@pytest.mark.parametrize(("changes", "subject"), [
    ({"upload": None}, "upload"), ({"keep_rows": None}, "keep_rows"), ({"logit_rows": None}, "logit_rows"),
    ({"num_rows": -1}, "upload"), ({"num_keep": -1}, "keep_rows"), ({"num_logit_rows": -1}, "logit_rows"),
    ({"num_rows": -(2**63)}, "upload"), ({"reserved": 1}, "step input reserved"),
])
def test_struct_that_no_binding_would_fill(runtime: Runtime, changes: dict[str, int | None], subject: str) -> None:
    upload, rows = upload_of(rows_of(2, [5])), identity(1)
    inputs = StepInputs(upload.ctypes.data, 1, rows.ctypes.data, 1, rows.ctypes.data, 1, 0, 0)
    for name, value in changes.items():
        setattr(inputs, name, value)
    with pytest.raises(Dsv41cError, match="DSV41C-E0801") as failure:
        runtime._call(interface().step, runtime._handle, ctypes.byref(inputs))
    assert failure.value.subject == subject
