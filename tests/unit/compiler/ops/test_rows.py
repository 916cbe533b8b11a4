"""Row tables: positions, groups, page mapping, selection at a boundary, greedy tokens."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dsv41c.compiler.ops.catalog import OPS
from dsv41c.compiler.ops.rows import RowColumn, RowFlag
from tests.unit.compiler.ops.row_laws import assert_fake_matches, assert_same_bits
from tests.unit.compiler.ops.slot_steps import (
    NUM_SLOTS,
    PAD_ROW,
    Chunk,
    Step,
    bodies,
    normal,
    schedules,
    step_rows,
)

BLOCK, PAGES, TRASH_PAGE = 4, 6, 18
LENGTHS = (9, 1, 14)
PAD_UPLOAD = [NUM_SLOTS, 0, 0, RowFlag.START | RowFlag.PAD, -1]


def fresh_state() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """slot_token, slot_position, page_table, replay_floor; START must override what positions and floors hold."""
    return (
        torch.tensor([70, 71, 72, 73], dtype=torch.int32),
        torch.tensor([5, 6, 7, 8], dtype=torch.int32),
        torch.full((NUM_SLOTS + 1, PAGES), TRASH_PAGE, dtype=torch.int32),
        torch.tensor([1, 2, 3, 4], dtype=torch.int32),
    )


def upload_of(step: Step) -> Tensor:
    """Rows carry token 10 * slot + position, and map page 6 * slot + logical where a block begins."""
    rows: list[list[int]] = []
    for slot, start, count in step:
        if count == 0:
            rows.append(PAD_UPLOAD)
        for offset in range(count):
            t = start + offset
            page = PAGES * slot + t // BLOCK if t % BLOCK == 0 else -1
            rows.append([slot, offset, 10 * slot + t, RowFlag.START if start == 0 else 0, page])
    return torch.tensor(rows, dtype=torch.int32)


@pytest.mark.parametrize("body", [0, 1], ids=["native", "reference"])
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_row_table_follows_slots_over_steps(body: int, data: st.DataObject) -> None:
    call = bodies("row_table")[body]
    tokens, positions, pages, floors = fresh_state()
    done = [0] * NUM_SLOTS
    for step in data.draw(schedules(LENGTHS)):
        rows = call(upload_of(step), tokens, positions, pages, floors, BLOCK)
        want = step_rows(step)
        plain = [c for c in RowColumn if c not in (RowColumn.TOKEN, RowColumn.FLAGS)]
        assert torch.equal(rows[:, plain], want[:, plain])
        assert torch.equal(rows[:, RowColumn.TOKEN], upload_of(step)[:, 2])
        assert torch.equal(rows[:, RowColumn.FLAGS], upload_of(step)[:, 3])
        for chunk in step:
            if chunk.count:
                done[chunk.slot] += chunk.count
                assert positions[chunk.slot] == done[chunk.slot]
    for slot, length in enumerate(LENGTHS):
        mapped = -(-length // BLOCK)
        assert pages[slot].tolist() == [PAGES * slot + i for i in range(mapped)] + [TRASH_PAGE] * (
            PAGES - mapped
        )
    assert positions[NUM_SLOTS] == 8 and (pages[NUM_SLOTS] == TRASH_PAGE).all()
    assert floors.tolist() == [0, 0, 0, 4], "a slot that starts has no floor, the trash slot keeps its own"


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_replay_floors_follow_slots_over_steps(data: st.DataObject) -> None:
    """The floor is the position of the slot's newest first row of a step that was 0 or carried HIT."""
    hits = [data.draw(st.lists(st.booleans(), min_size=n, max_size=n)) for n in LENGTHS]
    held = [1, 2, 3, 4]
    states = [fresh_state() for _ in range(2)]
    for step in data.draw(schedules(LENGTHS)):
        upload = upload_of(step)
        for row in upload:
            slot, offset, token, flags, _ = row.tolist()
            if slot < NUM_SLOTS and hits[slot][token - 10 * slot]:
                row[3] |= RowFlag.HIT
            if slot < NUM_SLOTS and offset == 0 and (flags & RowFlag.START or row[3] & RowFlag.HIT):
                held[slot] = token - 10 * slot
        want = [0 if slot == NUM_SLOTS else held[slot] for slot in upload[:, 0].tolist()]
        for call, (tokens, positions, pages, floors) in zip(bodies("row_table"), states, strict=True):
            rows = call(upload, tokens, positions, pages, floors, BLOCK)
            assert rows[:, RowColumn.FLOOR].tolist() == want
            assert floors.tolist() == held
            kept = bodies("take_row_table")[0](rows, torch.arange(len(rows)).int(), NUM_SLOTS, "suffix")
            assert kept[:, RowColumn.FLOOR].tolist() == want


@pytest.mark.parametrize("body", [0, 1], ids=["native", "reference"])
def test_row_table_takes_the_token_of_the_device(body: int) -> None:
    tokens, positions, pages, floors = fresh_state()
    upload = torch.tensor([[2, 0, -1, 0, -1], [0, 0, -1, RowFlag.IMAGE, 3], PAD_UPLOAD], dtype=torch.int32)
    rows = bodies("row_table")[body](upload, tokens, positions, pages, floors, BLOCK)
    assert rows.tolist() == [
        [2, 7, 7, 0, 1, 72, 3, 0],
        [0, 5, 5, 1, 1, 70, 1, RowFlag.IMAGE],
        [NUM_SLOTS, 0, 0, 2, 1, 0, 0, RowFlag.START | RowFlag.PAD],
    ]
    assert positions.tolist() == [6, 6, 8, 8] and pages[0, 1] == 3


@pytest.mark.parametrize("body", [0, 1], ids=["native", "reference"])
def test_a_page_past_the_table_is_not_mapped(body: int) -> None:
    tokens, positions, pages, floors = fresh_state()
    positions[1] = PAGES * BLOCK
    bodies("row_table")[body](
        torch.tensor([[1, 0, 4, 0, 2]], dtype=torch.int32), tokens, positions, pages, floors, BLOCK
    )
    assert (pages == TRASH_PAGE).all()


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_taken_tables_are_regrouped(data: st.DataObject) -> None:
    step = data.draw(schedules(LENGTHS))[0]
    rows = step_rows(step)
    kept: list[int] = []
    wanted: list[Chunk] = []
    first = 0
    for slot, start, count in step:
        tail = data.draw(st.integers(0, count))
        kept += range(first + count - tail, first + count)
        wanted += [Chunk(slot, start + count - tail, tail)] if tail else []
        first += max(count, 1)
    pads = data.draw(st.integers(0 if kept else 1, 3))
    index = torch.tensor(kept + [-1] * pads, dtype=torch.int32)
    want = step_rows((*wanted, *[Chunk(NUM_SLOTS, 0, 0)] * pads))
    for call in bodies("take_row_table"):
        assert torch.equal(call(rows, index, NUM_SLOTS, "head"), want)


def test_taking_all_rows_changes_nothing_and_foreign_indices_are_pads() -> None:
    rows = step_rows((Chunk(0, 3, 2), Chunk(NUM_SLOTS, 0, 0), Chunk(2, 0, 3)))
    for call in bodies("take_row_table"):
        assert torch.equal(call(rows, torch.arange(6, dtype=torch.int32), NUM_SLOTS, "head"), rows)
        assert call(rows, torch.tensor([99], dtype=torch.int32), NUM_SLOTS, "head").tolist() == [
            list(PAD_ROW)
        ]


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_floors_follow_slots_over_steps(data: st.DataObject) -> None:
    """A row sees the position of the last flagged row of its slot up to itself, or of position 0."""
    held = [torch.tensor([90, 91, 92, 93], dtype=torch.int32) for _ in range(2)]
    floors: dict[int, int] = {}
    for step in data.draw(schedules(LENGTHS)):
        rows = step_rows(step)
        live = rows[:, RowColumn.FLAGS] & RowFlag.PAD == 0
        flagged = torch.tensor(data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows))))
        rows[:, RowColumn.FLAGS] |= torch.where(live & flagged, int(RowFlag.FLOOR), 0).int()
        want = rows.clone()
        for row, is_live in zip(want, live, strict=True):
            slot, position = int(row[RowColumn.SLOT]), int(row[RowColumn.POSITION])
            if is_live and (position == 0 or row[RowColumn.FLAGS] & RowFlag.FLOOR):
                floors[slot] = position
            if is_live:
                row[RowColumn.FLOOR] = floors.get(slot, 90 + slot)
        for call, state in zip(bodies("window_floor"), held, strict=True):
            assert torch.equal(call(rows, state), want)
            assert state.tolist() == [floors.get(slot, 90 + slot) for slot in range(NUM_SLOTS + 1)]


def test_take_rows_gives_row_0_to_pads() -> None:
    x = normal(0, 4, 3, 2)
    taken = OPS["take_rows"].reference(x, torch.tensor([2, -1, 3], dtype=torch.int32), "head")
    assert_same_bits(taken, x[[2, 0, 3]], "taken rows")


@pytest.mark.parametrize("body", [0, 1], ids=["native", "reference"])
def test_greedy_ties_and_nan(body: int) -> None:
    nan, inf = float("nan"), float("inf")
    logits = torch.tensor(
        [
            [1, 3, 3, 0, 3, 1, 1, 1, 1, 3],
            [nan] * 10,
            [nan, -inf, nan, -inf, nan, nan, nan, nan, nan, nan],
            [nan, 1, 2, 2, nan, nan, nan, nan, nan, 2.5],
            [0.0, -0.0, -1, -1, -1, -1, -1, -1, -1, -1],
            [inf] * 10,
        ]
    )
    rows = step_rows((Chunk(0, 4, 2), Chunk(2, 0, 2), Chunk(NUM_SLOTS, 0, 0), Chunk(NUM_SLOTS, 0, 0)))
    held = torch.tensor([50, 51, 52, 53], dtype=torch.int32)
    token = bodies("greedy_token")[body](logits, rows, held)
    assert token.tolist() == [1, 0, 1, 9, 0, 0]
    assert held.tolist() == [0, 51, 9, 53], "the last row of a slot sets its token, pads set none"


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**16), width=st.integers(1, 70))
def test_greedy_equals_reference(seed: int, width: int) -> None:
    logits = normal(seed, 5, width).mul(2).round()  # many ties
    rows = step_rows((Chunk(1, 0, 3), Chunk(NUM_SLOTS, 0, 0), Chunk(0, 7, 1)))
    native, reference = bodies("greedy_token")
    held, want_held = (torch.full((NUM_SLOTS + 1,), 9, dtype=torch.int32) for _ in range(2))
    assert torch.equal(native(logits, rows, held), reference(logits, rows, want_held))
    assert torch.equal(held, want_held)


def test_fakes() -> None:
    rows = step_rows((Chunk(0, 3, 2),))
    index = torch.tensor([1, -1, 0], dtype=torch.int32)
    cases = {
        "row_table": (upload_of((Chunk(0, 0, 2),)), *fresh_state(), BLOCK),
        "take_row_table": (rows, index, 3, "head"),
        "window_floor": (rows, fresh_state()[0]),
        "take_rows": (normal(0, 2, 3), index, "head"),
        "greedy_token": (normal(0, 2, 5), rows, fresh_state()[0]),
    }
    for name, arguments in cases.items():
        assert_fake_matches(OPS[name].fake, OPS[name].reference, *arguments)
