"""Bad step inputs: every rule of the upload names its row and field, and no state changes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

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
    ([0, 2], [], "keep_rows entry 1"),
    ([2, 3], [2], "logit_rows entry 0"),
    ([2, 3], [1, 1], "logit_rows entry 1"),
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
