"""Placing a slot behind a prefix hit: what is refused and changes nothing, and what the rows behind it must say."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dsv41c.runtime.binding import ResumeInputs, interface
from dsv41c.runtime.load import Runtime, load
from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.runtime.step_rows import FLOOR, HIT, REPLAY, START
from tests.unit.runtime.toy_artifact import write_artifact

SLOTS, PER_SLOT, BLOCK, WINDOW, VOCAB = 3, 16, 4, 8, 96
OPTIONS = {"dtype": "float32", "quantizers": "off", "max_model_len": 64, "max_num_seqs": SLOTS,
           "max_num_batched_tokens": 24, "block_size": BLOCK}
NONE = np.zeros(0, np.int32)
TRASH = SLOTS * PER_SLOT


@pytest.fixture
def runtime(compiled_artifact: Callable[..., Path]) -> Iterator[Runtime]:
    """Slot 0 has run 20 positions in the pages 0 to 4."""
    with load(compiled_artifact("tiny", 0, **OPTIONS, suffix_mode="off")) as opened:
        step(opened, rows(0, 0, 20))
        yield opened


@pytest.fixture
def bounded(compiled_artifact: Callable[..., Path]) -> Iterator[Runtime]:
    options = {**OPTIONS, "suffix_mode": "compact", "suffix_keep_tokens": WINDOW}
    with load(compiled_artifact("tiny", 0, **options)) as opened:
        step(opened, rows(0, 0, 20))
        yield opened


def rows(slot: int, position: int, count: int, prefix: int = 0, hit: bool = False) -> np.ndarray:
    """Rows that map the slot's own pages behind the prefix. `hit`: the first one carries HIT."""
    table = np.zeros((count, 5), np.int32)
    positions = position + np.arange(count)
    table[:, 0], table[:, 1], table[:, 2] = slot, np.arange(count), 1 + positions
    table[:, 3] = np.where(positions < prefix, REPLAY, START if position == 0 and not prefix else 0)
    table[0, 3] |= HIT if hit else 0
    table[:, 4] = np.where((positions % BLOCK == 0) & (positions >= prefix), PER_SLOT * slot + positions // BLOCK, -1)
    return table


def step(runtime: Runtime, upload: np.ndarray, keep: np.ndarray | None = None) -> None:
    runtime.step(upload, np.arange(len(upload), dtype=np.int32) if keep is None else keep, NONE)


def resume(runtime: Runtime, prefix: int = 16, slot: int = 1, **changes: Any) -> None:
    first = min(max(prefix - WINDOW, 0), 64)
    given: dict[str, Any] = {"tokens": 1 + np.arange(max(first - 2, 0), first, dtype=np.int32),
                             "pages": np.arange(-(-min(prefix, 64) // BLOCK), dtype=np.int32)} | changes
    runtime.resume(slot, prefix, **given)


def snapshot(runtime: Runtime) -> list[bytes]:
    names = ("slot_position", "slot_token", "page_table", "token_ring", "replay_floor", "window_0", "compressed_1")
    return [runtime.state(name).tobytes() for name in names]


def refused(runtime: Runtime, call: Callable[[], None]) -> Dsv41cError:
    before, records = snapshot(runtime), runtime.num_records()
    with pytest.raises(Dsv41cError, match="E0801") as failure:
        call()
    assert snapshot(runtime) == before and runtime.num_records() == records
    return failure.value


def test_a_placed_slot_stands_where_its_replay_begins(runtime: Runtime) -> None:
    resume(runtime, 16)
    assert runtime.state("slot_position")[1] == 8
    assert runtime.state("page_table")[1].tolist() == [0, 1, 2, 3] + [TRASH] * 12
    assert runtime.state("token_ring")[1].tolist() == [7, 8]
    step(runtime, rows(1, 8, 10, prefix=16, hit=True))
    assert runtime.state("replay_floor").tolist() == [0, 8, 0, 0]
    assert runtime.state("slot_position")[1] == 18


def test_an_odd_history_lies_by_position(runtime: Runtime) -> None:
    resume(runtime, 10)
    assert runtime.state("token_ring")[1].tolist() == [1, 2]
    resume(runtime, 8)
    assert runtime.state("slot_position")[1] == 0


@pytest.mark.parametrize(("changes", "subject", "found", "needed"), [
    ({"slot": -1}, "slot", "-1", "below 3"), ({"slot": SLOTS}, "slot", "3", "below 3"),
    ({"prefix": 0}, "prefix_length", "0", "at least 2 and below 64"),
    ({"prefix": -2}, "prefix_length", "-2", "at least 2"),
    ({"prefix": 64}, "prefix_length", "64", "below 64"),
    ({"prefix": 2**40}, "prefix_length", str(2**40), "below 64"),
    ({"prefix": 7}, "prefix_length", "7", "an even number"), ({"prefix": 15}, "prefix_length", "15", "position 14"),
    ({"tokens": NONE}, "tokens", "0 entries", "2 entries"),
    ({"tokens": np.zeros(3, np.int32)}, "tokens", "3 entries", "2 entries"),
    ({"prefix": 8, "tokens": np.zeros(1, np.int32)}, "tokens", "1 entries", "0 entries"),
    ({"tokens": np.array([0, VOCAB], np.int32)}, "tokens entry 1", "96", "below 96"),
    ({"tokens": np.array([-2, 0], np.int32)}, "tokens entry 0", "-2", "at least -1"),
    ({"pages": np.arange(3, dtype=np.int32)}, "pages", "3 entries", "4 entries"),
    ({"pages": np.arange(5, dtype=np.int32)}, "pages", "5 entries", "4 entries"),
    ({"pages": np.array([0, 1, TRASH, 3], np.int32)}, "pages entry 2", "48", "below 48"),
    ({"pages": np.array([0, -1, 2, 3], np.int32)}, "pages entry 1", "-1", "at least 0"),
    ({"pages": np.array([0, 1, 2, 1], np.int32)}, "pages entry 3", "1", "another page than entry 1"),
])
def test_bad_hits_are_refused(runtime: Runtime, changes: dict[str, Any], subject: str, found: str, needed: str) -> None:
    error = refused(runtime, lambda: resume(runtime, **changes))
    assert (error.subject, error.found) == (subject, found) and needed in error.needed
    step(runtime, rows(1, 0, 2))  # no slot was placed


@pytest.mark.parametrize("prefix", range(1, 24, 2))
def test_every_odd_length_says_why(runtime: Runtime, prefix: int) -> None:
    error = refused(runtime, lambda: resume(runtime, prefix))
    assert error.found == str(prefix) and "compressor makes one entry of each two positions" in error.needed


@pytest.mark.parametrize(("name", "value"), [("slot", 1.0), ("slot", 2**31), ("prefix_length", "16"),
                                             ("prefix_length", 2**63), ("slot", True)])
def test_numbers_of_another_form(runtime: Runtime, name: str, value: object) -> None:
    given: dict[str, Any] = {"slot": 1, "prefix_length": 16, "tokens": NONE, "pages": NONE} | {name: value}
    assert refused(runtime, lambda: runtime.resume(**given)).subject == name


@pytest.mark.parametrize("name", ["tokens", "pages"])
def test_arrays_of_another_form(runtime: Runtime, name: str) -> None:
    assert refused(runtime, lambda: resume(runtime, **{name: np.zeros(2, np.int64)})).subject == name


@pytest.mark.parametrize(("changes", "subject"), [
    ({"reserved": 1}, "resume input reserved"), ({"tokens": None}, "tokens"), ({"pages": None}, "pages"),
    ({"prefix_length": -(2**63)}, "prefix_length"), ({"num_tokens": -1}, "tokens"), ({"num_pages": -1}, "pages")])
def test_struct_that_no_binding_would_fill(runtime: Runtime, changes: dict[str, int | None], subject: str) -> None:
    tokens, pages = np.array([7, 8], np.int32), np.arange(4, dtype=np.int32)
    inputs = ResumeInputs(1, 0, 16, tokens.ctypes.data, 2, pages.ctypes.data, 4)
    for name, value in changes.items():
        setattr(inputs, name, value)
    error = refused(runtime, lambda: runtime._call(interface().resume, runtime._handle, ctypes.byref(inputs)))
    assert error.subject == subject


def test_a_plan_without_windows_places_no_slot(tmp_path: Path) -> None:
    with load(write_artifact(tmp_path / "artifact")) as toy, pytest.raises(Dsv41cError, match="E0801") as failure:
        toy.resume(1, 2, NONE, NONE)
    assert failure.value.subject == "resume"


def flagged(upload: np.ndarray, row: int, flags: int) -> np.ndarray:
    upload[row, 3] = flags
    return upload


@pytest.mark.parametrize(("upload", "row", "field", "needed"), [
    (rows(1, 8, 10, 16), 0, "FLAGS", "HIT (32) on the first row behind a resume"),
    (flagged(rows(1, 8, 10, 16, True), 3, REPLAY | HIT), 3, "FLAGS", "HIT (32) on the first row behind a resume only"),
    (flagged(rows(1, 8, 10, 16, True), 7, 0), 7, "FLAGS", "REPLAY (16) at position 15 of slot 1, whose prefix"),
    (flagged(rows(1, 8, 10, 16, True), 8, REPLAY), 8, "FLAGS", "no REPLAY (16) at position 16 of slot 1"),
    (flagged(rows(1, 8, 10, 16, True), 0, HIT), 0, "FLAGS", "REPLAY (16) at position 8"),
    (rows(1, 8, 10, 12, True), 4, "FLAGS", "REPLAY (16) at position 12"),
    (flagged(rows(1, 0, 4), 0, START | HIT), 0, "FLAGS", "HIT (32) on the first row behind a resume only"),
    (flagged(rows(1, 0, 4), 0, START | REPLAY), 0, "FLAGS", "no REPLAY (16) at position 0"),
    (flagged(rows(0, 20, 1), 0, REPLAY), 0, "FLAGS", "no REPLAY (16) at position 20 of slot 0"),
    (flagged(rows(0, 20, 1), 0, HIT), 0, "FLAGS", "HIT (32) on the first row behind a resume only"),
    (flagged(rows(0, 20, 1), 0, FLOOR), 0, "FLAGS", "REPLAY (16), HIT (32) only"),
])
def test_rows_behind_a_hit_say_so(runtime: Runtime, upload: np.ndarray, row: int, field: str, needed: str) -> None:
    resume(runtime, 16)
    error = refused(runtime, lambda: step(runtime, upload))
    assert error.subject == f"upload row {row}, field {field}" and needed in error.needed, error


def test_replayed_rows_map_no_page(runtime: Runtime) -> None:
    resume(runtime, 16)
    upload = rows(1, 8, 10, 16, True)
    upload[4, 4] = 20
    error = refused(runtime, lambda: step(runtime, upload))
    assert error.subject == "upload row 4, field PAGE" and "its pages are mapped" in error.needed


def test_the_flags_follow_the_slot_over_steps(runtime: Runtime) -> None:
    resume(runtime, 16)
    step(runtime, rows(1, 8, 3, 16, True))
    refused(runtime, lambda: step(runtime, rows(1, 11, 5, 16, True)))
    refused(runtime, lambda: step(runtime, rows(1, 11, 5)))
    step(runtime, rows(1, 11, 5, 16))
    step(runtime, rows(1, 16, 3, 16))
    step(runtime, rows(1, 0, 3))


def test_a_slot_that_starts_is_no_longer_placed(runtime: Runtime) -> None:
    resume(runtime, 16)
    step(runtime, rows(1, 0, 3))
    step(runtime, rows(1, 3, 2))
    assert runtime.state("replay_floor")[1] == 0


def test_a_second_resume_replaces_the_first(runtime: Runtime) -> None:
    resume(runtime, 16)
    step(runtime, rows(1, 8, 3, 16, True))
    resume(runtime, 12)
    step(runtime, rows(1, 4, 8, 12, True))
    assert runtime.state("replay_floor")[1] == 4


def test_written_state_ends_what_is_known_of_prefixes(runtime: Runtime) -> None:
    for name in ("slot_position", "replay_floor", "page_table"):
        resume(runtime, 16)
        runtime.write_state(name, runtime.state(name).copy())
        refused(runtime, lambda: step(runtime, rows(1, 8, 1, 16, True)))


def test_the_first_kept_row_behind_a_hit_carries_the_floor(bounded: Runtime) -> None:
    resume(bounded, 16)
    upload = rows(1, 8, 10, 16, True)
    keep = np.arange(2, 10, dtype=np.int32)
    assert "FLOOR (8) on the first kept row" in refused(bounded, lambda: step(bounded, upload, keep)).needed
    upload[2, 3] |= FLOOR
    step(bounded, upload, keep)
    assert (bounded.state("window_floor")[1], bounded.state("replay_floor")[1]) == (10, 8)
    resume(bounded, 16)
    upload = rows(1, 8, 10, 16, True)
    assert "FLOOR (8) on the first kept row" in refused(bounded, lambda: step(bounded, upload)).needed
    upload[0, 3] |= FLOOR
    step(bounded, upload)
    assert bounded.state("window_floor")[1] == 8


def test_a_hit_from_position_0_on_needs_no_floor(bounded: Runtime) -> None:
    resume(bounded, 8)
    step(bounded, rows(1, 0, 10, 8, True))
    assert bounded.state("window_floor")[1] == 0


def test_a_shared_page_is_read_by_any_number_of_slots(runtime: Runtime) -> None:
    for slot in (1, 2):
        resume(runtime, 16, slot)
    step(runtime, np.concatenate([rows(slot, 8, 10, 16, True) for slot in (1, 2)] + [rows(0, 20, 1)]))
    assert runtime.state("page_table")[1, :4].tolist() == runtime.state("page_table")[2, :4].tolist() == [0, 1, 2, 3]


def test_a_page_is_not_written_where_it_is_read(runtime: Runtime) -> None:
    """In either order, and whoever read it last."""
    for slot in (1, 2):
        resume(runtime, 16, slot)
    thief = rows(0, 0, 1)
    thief[0, 4] = 3
    readers = [rows(slot, 8, 10, 16, True) for slot in (1, 2)]
    for parts in ([thief, *readers], [*readers, thief], [readers[0], thief, readers[1]]):
        error = refused(runtime, lambda parts=parts: step(runtime, np.concatenate(parts)))  # type: ignore[misc]
        assert "a page of its own: page 3 already holds positions of" in error.needed


def test_the_page_that_a_prefix_ends_in_is_the_slots_own(runtime: Runtime) -> None:
    """Two slots that would write into it, in one step; the executor takes a copy of the page on trust otherwise."""
    for slot in (1, 2):
        resume(runtime, 14, slot)
    parts = [rows(slot, 6, 10, 14, True) for slot in (1, 2)]
    error = refused(runtime, lambda: step(runtime, np.concatenate(parts)))
    assert "page 3 already holds positions of slot 1" in error.needed


def test_a_page_that_a_prefix_fills_is_sealed_until_a_row_maps_it(runtime: Runtime) -> None:
    """Whoever wrote it before: a slot that was put back writes there no more."""
    step(runtime, rows(0, 0, 14))
    resume(runtime, 16)  # which says that page 3 is full
    error = refused(runtime, lambda: step(runtime, rows(0, 14, 1)))
    assert error.subject == "upload row 0, field PAGE" and "page 3 is filled by a prefix" in error.needed
    upload = rows(0, 14, 2)
    upload[0, 4] = 3
    step(runtime, upload)
    step(runtime, rows(0, 16, 1))


def test_a_sealed_page_may_become_the_end_of_another_prefix(runtime: Runtime) -> None:
    resume(runtime, 16)
    resume(runtime, 6, 2, pages=np.array([0, 3], np.int32))  # page 3 has been handed out as slot 2's own copy
    step(runtime, rows(2, 0, 7, 6, True))
    assert runtime.state("slot_position")[2] == 7


def test_a_slot_is_not_rolled_back_below_its_windows(compiled_artifact: Callable[..., Path]) -> None:
    with load(compiled_artifact("tiny", 0, **OPTIONS, suffix_mode="off", draft_len=2)) as drafts:
        step(drafts, rows(0, 0, 20))
        resume(drafts, 16)
        step(drafts, rows(1, 8, 2, 16, True))
        one, lengths = np.array([1], np.int32), np.array([7], np.int32)
        error = refused(drafts, lambda: drafts.rollback(one, lengths))
        assert (error.subject, error.found) == ("rollback entry 0, length", "7")
        assert "at least 8, where the windows of slot 1 begin behind its prefix of 16" in error.needed
        drafts.rollback(one, lengths + 1)
        step(drafts, rows(1, 8, 8, 16))


def test_what_a_slot_held_before_its_hit_is_no_bound(compiled_artifact: Callable[..., Path]) -> None:
    """A rollback is bounded by what the slot has held since it was placed."""
    with load(compiled_artifact("tiny", 0, **OPTIONS, suffix_mode="off", draft_len=2)) as drafts:
        step(drafts, rows(0, 0, 20))
        step(drafts, rows(1, 0, 24))
        resume(drafts, 8)
        step(drafts, rows(1, 0, 10, 8, True))
        drafts.rollback(np.array([1], np.int32), np.array([7], np.int32))
        assert drafts.state("slot_position")[1] == 7
