"""Rollback and drafts of an executor: every rule names what is wrong, and a refused call changes nothing."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dsv41c.runtime.load import Runtime, load
from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.runtime.step_rows import FLOOR, START

SLOTS, DRAFTS, BLOCK, VOCAB, POSITIONS = 3, 2, 4, 96, 64
BACKTRACK = DRAFTS + 1
OPTIONS = {"dtype": "float32", "quantizers": "off", "max_model_len": POSITIONS, "max_num_seqs": SLOTS,
           "max_num_batched_tokens": 64, "block_size": BLOCK}
NONE = np.zeros(0, np.int32)


@pytest.fixture(scope="module")
def module_runtime(compiled_artifact: Callable[..., Path]) -> Iterator[Runtime]:
    with load(compiled_artifact("tiny", 0, **OPTIONS, draft_len=DRAFTS)) as opened:
        yield opened


@pytest.fixture
def runtime(module_runtime: Runtime) -> Runtime:
    """Slot 0 holds 9 positions, slot 1 holds 5, slot 2 none."""
    module_runtime.write_state("slot_position", np.zeros(SLOTS + 1, np.int32))
    step(module_runtime, rows(0, 0, 9))
    step(module_runtime, rows(1, 0, 5))
    return module_runtime


def rows(slot: int, position: int, count: int) -> np.ndarray:
    table = np.zeros((count, 5), np.int32)
    positions = position + np.arange(count)
    table[:, 0], table[:, 1], table[:, 2] = slot, np.arange(count), (7 * positions + slot) % VOCAB
    table[:, 3] = START if position == 0 else 0
    table[:, 4] = np.where(positions % BLOCK == 0, POSITIONS // BLOCK * slot + positions // BLOCK, -1)
    return table


def step(runtime: Runtime, upload: np.ndarray, keep: list[int] | None = None) -> None:
    kept = np.arange(len(upload), dtype=np.int32) if keep is None else np.array(keep, np.int32)
    runtime.step(upload, kept, np.array([len(kept) - 1], np.int32) if len(kept) else NONE)


def numbers(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def refused(runtime: Runtime, call: Callable[[], None]) -> Dsv41cError:
    """E0801 without any change of state and without a record."""
    names = ("slot_position", "slot_token", "page_table", "window_0", "draft_window_0")
    before, records = [runtime.state(name).tobytes() for name in names], runtime.num_records()
    with pytest.raises(Dsv41cError) as failure:
        call()
    assert failure.value.code == "DSV41C-E0801"
    assert [runtime.state(name).tobytes() for name in names] == before and runtime.num_records() == records
    return failure.value


@pytest.mark.parametrize(("slots", "lengths", "subject", "needed"), [
    ((), (), "rollback", "at least 1 slot"),
    ((SLOTS,), (1,), "rollback entry 0, slot", "below 3"),
    ((0, -1), (8, 1), "rollback entry 1, slot", "at least 0"),
    ((0, 1, 0), (8, 4, 8), "rollback entry 2, slot", "each slot once"),
    ((0,), (0,), "rollback entry 0, length", "at least 1 and at most 9, the position of slot 0"),
    ((0,), (10,), "rollback entry 0, length", "at most 9"),
    ((2,), (1,), "rollback entry 0, length", "at most 0"),
    ((1, 0), (4, 5), "rollback entry 1, length", "at least 6: slot 0 has held 9 positions, and 3 of them"),
])
def test_a_rollback_that_cannot_be(runtime: Runtime, slots: tuple[int, ...], lengths: tuple[int, ...], subject: str,
                                   needed: str) -> None:
    error = refused(runtime, lambda: runtime.rollback(numbers(*slots), numbers(*lengths)))
    assert error.subject == subject and needed in error.needed


def test_arrays_of_another_form_are_refused(runtime: Runtime) -> None:
    assert "2 entries" in refused(runtime, lambda: runtime.rollback(numbers(0), numbers(8, 8))).found
    refused(runtime, lambda: runtime.rollback(np.array([0], np.int64), numbers(8)))
    refused(runtime, lambda: runtime.draft(numbers(0, 0, 1, 0, -1)))


def test_slots_forget_the_positions_behind(runtime: Runtime) -> None:
    runtime.rollback(numbers(1, 0), numbers(3, 7))
    assert runtime.state("slot_position")[:SLOTS].tolist() == [7, 3, 0]
    step(runtime, rows(0, 7, 1))
    assert runtime.state("slot_position")[0] == 8


def test_a_slot_goes_no_further_back_than_its_rings(runtime: Runtime) -> None:
    """What counts is how far a slot has been, not where it stands: later rollbacks reach no row that is overwritten."""
    runtime.rollback(numbers(0), numbers(7))
    step(runtime, rows(0, 7, 1))
    assert "at least 6" in refused(runtime, lambda: runtime.rollback(numbers(0), numbers(5))).needed
    runtime.rollback(numbers(0), numbers(6))
    step(runtime, rows(0, 6, 5))
    assert "slot 0 has held 11" in refused(runtime, lambda: runtime.rollback(numbers(0), numbers(7))).needed


def test_a_slot_that_starts_or_is_placed_begins_anew(runtime: Runtime) -> None:
    step(runtime, rows(0, 0, 3))
    runtime.rollback(numbers(0), numbers(1))
    placed = runtime.state("slot_position").copy()
    placed[0] = 20
    runtime.write_state("slot_position", placed)
    runtime.rollback(numbers(0), numbers(17))
    assert "at least 17" in refused(runtime, lambda: runtime.rollback(numbers(0), numbers(16))).needed


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(moves=st.lists(st.tuples(st.booleans(), st.integers(1, 6)), max_size=12))
def test_the_law_of_the_rings(module_runtime: Runtime, moves: list[tuple[bool, int]]) -> None:
    """Against a count of its own: a rollback succeeds just where no ring has lost a row that it needs."""
    step(module_runtime, rows(0, 0, 4))
    position = high = 4
    for forward, count in moves:
        if forward and position + count <= POSITIONS:
            step(module_runtime, rows(0, position, count))
            position, high = position + count, max(high, position + count)
        elif not forward:
            length = position - count + 1
            back = functools.partial(module_runtime.rollback, numbers(0), numbers(length))
            if length >= 1 and high - length <= BACKTRACK:
                back()
                position = length
            else:
                refused(module_runtime, back)
        assert module_runtime.state("slot_position")[0] == position


@pytest.mark.parametrize(("row", "field", "needed"), [
    ((SLOTS, 0, 1, 0, -1), "SLOT", "below 3"),
    ((0, 1, 1, 0, -1), "OFFSET", "0: the executor makes the rows"),
    ((0, 0, VOCAB, 0, -1), "TOKEN", "below 96"),
    ((0, 0, -2, 0, -1), "TOKEN", "at least -1"),
    ((0, 0, 1, START, -1), "FLAGS", "0 in a draft"),
    ((0, 0, 1, 0, 3), "PAGE", "-1"),
    ((1, 0, 1, 0, -1), "SLOT", "each slot once"),
    ((2, 0, 1, 0, -1), "SLOT", "a slot with a position before the draft"),
])
def test_a_draft_that_cannot_be(runtime: Runtime, row: tuple[int, ...], field: str, needed: str) -> None:
    upload = np.array([(1, 0, 5, 0, -1), row], np.int32)
    error = refused(runtime, lambda: runtime.draft(upload))
    assert error.subject == f"upload row 1, field {field}" and needed in error.needed


def test_no_draft_behind_the_last_position(runtime: Runtime) -> None:
    step(runtime, rows(0, 0, POSITIONS))
    error = refused(runtime, lambda: runtime.draft(np.array([(0, 0, 1, 0, -1)], np.int32)))
    assert "room behind it; it holds 64 of 64 positions" in error.needed
    refused(runtime, lambda: runtime.draft(np.zeros((0, 5), np.int32)))


def test_a_draft_gives_tokens_and_confidence_and_changes_no_state(runtime: Runtime) -> None:
    names = ("slot_position", "slot_token", "page_table", "token_ring", "draft_window_0")
    before, since = [runtime.state(name).tobytes() for name in names], runtime.num_records()
    runtime.draft(np.array([(1, 0, -1, 0, -1), (0, 0, 5, 0, -1)], np.int32))
    tokens, confidence = runtime.output("draft_tokens"), runtime.output("confidence")
    assert tokens.shape == confidence.shape == (2, 3) and tokens.dtype == np.int32
    assert ((tokens >= 0) & (tokens < VOCAB)).all() and ((confidence > 0) & (confidence < 1)).all()
    assert [runtime.state(name).tobytes() for name in names] == before
    (record,) = runtime.records(since)
    assert (record.method, record.bucket, record.rows, record.reason) == ("draft", 2, 2, "bucket")
    with pytest.raises(Dsv41cError, match="output logits"):
        runtime.output("logits")


def test_a_draft_is_the_same_alone_in_a_batch_and_eager(runtime: Runtime) -> None:
    alone = []
    for slot in (0, 1):
        runtime.draft(np.array([(slot, 0, 7, 0, -1)], np.int32))
        alone.append((runtime.output("draft_tokens").tobytes(), runtime.output("confidence").tobytes()))
    for eager in (False, True):
        runtime.draft(np.array([(1, 0, 7, 0, -1), (0, 0, 7, 0, -1)], np.int32), eager)
        for row, slot in enumerate((1, 0)):
            assert (runtime.output("draft_tokens")[row].tobytes(), runtime.output("confidence")[row].tobytes()) == (
                alone[slot])


def test_a_plan_without_drafts_says_how_to_get_them(compiled_artifact: Callable[..., Path]) -> None:
    with load(compiled_artifact("tiny", 0, **OPTIONS)) as plain:
        step(plain, rows(0, 0, 4))
        with pytest.raises(Dsv41cError, match="DSV41C-E0801") as failure:
            plain.draft(np.array([(0, 0, 1, 0, -1)], np.int32))
        assert "--draft-len" in failure.value.do
        plain.rollback(numbers(0), numbers(4))
        with pytest.raises(Dsv41cError, match="DSV41C-E0801") as failure:
            plain.rollback(numbers(0), numbers(3))
        assert "0 of them can be forgotten" in failure.value.needed


def test_the_first_kept_row_says_its_floor_again(compiled_artifact: Callable[..., Path]) -> None:
    """Rolled back to where the kept rows began, a slot has a gap before it as it had then."""
    options = {**OPTIONS, "draft_len": DRAFTS, "suffix_mode": "compact", "suffix_keep_tokens": 11}
    with load(compiled_artifact("tiny", 0, **options)) as runtime:
        upload = rows(0, 0, 8)
        upload[6, 3] |= FLOOR
        step(runtime, upload, [6, 7])
        runtime.rollback(numbers(0), numbers(7))
        step(runtime, rows(0, 7, 1))
        runtime.rollback(numbers(0), numbers(6))
        with pytest.raises(Dsv41cError, match="E0801") as failure:
            step(runtime, rows(0, 6, 1))
        assert "FLOOR (8)" in failure.value.needed
        again = rows(0, 6, 1)
        again[0, 3] |= FLOOR
        step(runtime, again)
        step(runtime, rows(0, 7, 1))
