"""What a step may leave out of the decoder: the first rows of a slot, and the first kept row then says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from dsv41c.runtime.load import Runtime, load
from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.runtime.step_rows import FLOOR, START

OPTIONS = {"dtype": "float32", "quantizers": "off", "max_model_len": 64, "max_num_seqs": 3,
           "max_num_batched_tokens": 24, "block_size": 4, "suffix_mode": "compact", "suffix_keep_tokens": 8}
NONE = np.zeros(0, np.int32)


@pytest.fixture
def runtime(compiled_artifact: Callable[..., Path]) -> Iterator[Runtime]:
    with load(compiled_artifact("tiny", 0, **OPTIONS)) as opened:
        yield opened


def rows(slot: int, position: int, count: int, floor: int | None = None) -> np.ndarray:
    """`floor`: index of the row that carries FLOOR."""
    table = np.zeros((count, 5), np.int32)
    positions = position + np.arange(count)
    table[:, 0], table[:, 1], table[:, 2] = slot, np.arange(count), 1 + positions
    table[:, 3] = START if position == 0 else 0
    table[:, 4] = np.where(positions % 4 == 0, 16 * slot + positions // 4, -1)
    if floor is not None:
        table[floor, 3] |= FLOOR
    return table


def refused(runtime: Runtime, upload: np.ndarray, keep: list[int]) -> Dsv41cError:
    with pytest.raises(Dsv41cError, match="E0801") as failure:
        runtime.step(upload, np.array(keep, np.int32), NONE)
    return failure.value


def step(runtime: Runtime, upload: np.ndarray, keep: list[int]) -> None:
    runtime.step(upload, np.array(keep, np.int32), NONE)


def test_the_first_kept_row_behind_a_gap_carries_the_floor(runtime: Runtime) -> None:
    error = refused(runtime, rows(0, 0, 6), [4, 5])
    assert (error.subject, error.found) == ("upload row 4, field FLAGS", "1")
    assert "FLOOR (8)" in error.needed
    refused(runtime, rows(0, 0, 6, floor=5), [4, 5])
    step(runtime, rows(0, 0, 6, floor=4), [4, 5])
    assert runtime.state("window_floor")[0] == 4


def test_the_gap_may_lie_in_an_earlier_step(runtime: Runtime) -> None:
    step(runtime, rows(1, 0, 6), [])
    assert "FLOOR (8)" in refused(runtime, rows(1, 6, 2), [0, 1]).needed
    assert "FLOOR (8)" in refused(runtime, rows(1, 6, 2), [1]).needed, "a refused step has changed nothing"
    step(runtime, rows(1, 6, 2, floor=0), [0, 1])
    step(runtime, rows(1, 8, 2), [0, 1])
    assert runtime.state("window_floor")[1] == 6


def test_a_slot_that_starts_again_has_no_gap(runtime: Runtime) -> None:
    step(runtime, rows(2, 0, 6), [])
    step(runtime, rows(2, 0, 2), [0, 1])
    assert runtime.state("window_floor")[2] == 0


def test_a_slot_at_position_0_has_no_gap(runtime: Runtime) -> None:
    """Wherever it was before: the host has put it back."""
    step(runtime, rows(2, 0, 6), [])
    runtime.write_state("slot_position", np.zeros_like(runtime.state("slot_position")))
    upload = rows(2, 0, 2)
    upload[:, 3] = 0
    step(runtime, upload, [0, 1])
    assert runtime.state("window_floor")[2] == 0


def test_written_positions_end_what_is_known_of_gaps(runtime: Runtime) -> None:
    step(runtime, rows(1, 0, 6), [])
    refused(runtime, rows(1, 6, 1), [0])
    runtime.write_state("window_floor", np.full_like(runtime.state("window_floor"), 6))
    step(runtime, rows(1, 6, 1), [0])


@pytest.mark.parametrize("keep", [[0, 1], [0, 5], [1, 2, 3], [0, 1, 2, 4, 5]])
def test_kept_rows_are_the_last_ones_of_their_slot(runtime: Runtime, keep: list[int]) -> None:
    error = refused(runtime, rows(0, 0, 6), keep)
    assert "keep_rows" in error.subject or "FLOOR" in error.needed


def test_slots_keep_rows_of_their_own(runtime: Runtime) -> None:
    upload = np.concatenate([rows(0, 0, 6, floor=3), rows(1, 0, 2), rows(2, 0, 5)])
    step(runtime, upload, [3, 4, 5, 6, 7])
    assert runtime.state("window_floor")[:2].tolist() == [3, 0]
    assert "FLOOR (8)" in refused(runtime, rows(2, 5, 1), [0]).needed


def test_a_floor_lies_on_a_kept_row(runtime: Runtime) -> None:
    assert "kept rows only" in refused(runtime, rows(0, 0, 6, floor=2), [3, 4, 5]).needed


def test_more_kept_rows_than_the_decoder_holds(runtime: Runtime) -> None:
    """Three requests of 8 kept rows are the bound: here it is the step's own, 24 rows."""
    step(runtime, rows(0, 0, 24), list(range(24)))
    assert "rows" in refused(runtime, rows(1, 0, 25), list(range(25))).found
