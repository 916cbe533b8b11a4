"""Row table ops: positions and groups of a step's rows, their selection at a boundary, the greedy token."""

from __future__ import annotations

import enum
from typing import NamedTuple

import torch
from torch import Tensor

from dsv41c.compiler.ops.spec import CaptureClass, NativeBody, OpSpec, PadRule


class UploadColumn(enum.IntEnum):
    """Columns of `upload`, what the host sends for each row of a step."""

    SLOT = 0
    OFFSET = 1  # the row's index within its slot's rows of this step
    TOKEN = 2  # -1: the slot's token on the device
    FLAGS = 3
    PAGE = 4  # page to map for the position's logical page before use, -1 for none


class RowColumn(enum.IntEnum):
    """Columns of `rows`, the row table that every other op reads."""

    SLOT = 0
    POSITION = 1
    BASE = 2  # position of the slot's first row in this table
    FIRST_ROW = 3  # index of that row
    COUNT = 4  # rows of the slot in this table
    TOKEN = 5
    FLOOR = 6  # lowest readable window position
    FLAGS = 7


class RowFlag(enum.IntEnum):
    START = 1  # the slot starts over at position 0
    IMAGE = 2  # image-like id
    PAD = 4
    FLOOR = 8  # the decoder's windows of the slot begin here: rows before it were not computed
    REPLAY = 16  # a prefix hit holds the row's entries already: it stores none
    HIT = 32  # the first row behind a placed prefix: all windows of the slot begin here


class Row(NamedTuple):
    """One row of the row table, read back by the torch references."""

    slot: int
    position: int
    base: int
    first_row: int
    group_size: int
    token: int
    floor: int
    flags: int

    @property
    def pad(self) -> bool:
        return bool(self.flags & RowFlag.PAD)

    @property
    def replayed(self) -> bool:
        return bool(self.flags & RowFlag.REPLAY)

    @property
    def image(self) -> bool:
        return bool(self.flags & RowFlag.IMAGE)

    def among_last(self, n: int, index: int) -> bool:
        """Whether the row at `index` is one of the last `n` of its slot in this table."""
        return index >= self.first_row + self.group_size - n


def read_rows(rows: Tensor) -> list[Row]:
    return [Row(*columns) for columns in rows.tolist()]


def _row_table_fake(upload: Tensor, slot_token: Tensor, slot_position: Tensor, page_table: Tensor,
                    replay_floor: Tensor, block_size: int) -> Tensor:
    return upload.new_empty((upload.shape[0], len(RowColumn)))


def _row_table(upload: Tensor, slot_token: Tensor, slot_position: Tensor, page_table: Tensor,
               replay_floor: Tensor, block_size: int) -> Tensor:
    sent: list[list[int]] = upload.tolist()
    tokens: list[int] = slot_token.tolist()
    table: list[Row] = []
    for slot, offset, token, flags, _ in sent:
        if offset == 0:
            first, base = len(table), 0 if flags & RowFlag.START else int(slot_position[slot])
            count = _group_length(sent, first)
            floor = base if base == 0 or flags & RowFlag.HIT else int(replay_floor[slot])
        resolved = token if token >= 0 else tokens[slot]
        table.append(Row(slot, base + offset, base, first, count, resolved, floor, flags))
    for row, (*_, page) in zip(table, sent, strict=True):
        if row.pad:
            continue
        slot_position[row.slot] = row.base + row.group_size
        replay_floor[row.slot] = row.floor
        logical = row.position // block_size
        if page >= 0 and logical < page_table.shape[1]:
            page_table[row.slot, logical] = page
    return torch.tensor(table, dtype=torch.int32)


def _group_length(sent: list[list[int]], first: int) -> int:
    """Rows from `first` on that belong to its group: offsets 0, 1, 2, ..."""
    count = 1
    while first + count < len(sent) and sent[first + count][UploadColumn.OFFSET] == count:
        count += 1
    return count


def _take_row_table_fake(rows: Tensor, index: Tensor, num_slots: int, boundary: str) -> Tensor:
    return rows.new_empty((index.shape[0], len(RowColumn)))


def _take_row_table(rows: Tensor, index: Tensor, num_slots: int, boundary: str) -> Tensor:
    source = read_rows(rows)
    pad = Row(num_slots, 0, 0, 0, 1, 0, 0, RowFlag.START | RowFlag.PAD)
    kept = [source[i] if 0 <= i < len(source) else pad for i in index.tolist()]
    table: list[Row] = []
    for i, row in enumerate(kept):
        if i == 0 or row.pad or kept[i - 1].pad or kept[i - 1].slot != row.slot:
            first, end = i, i + 1
            while not row.pad and end < len(kept) and not kept[end].pad and kept[end].slot == row.slot:
                end += 1
        table.append(row._replace(base=kept[first].position, first_row=first, group_size=end - first))
    return torch.tensor(table, dtype=torch.int32)


def _window_floor_fake(rows: Tensor, window_floor: Tensor) -> Tensor:
    return torch.empty_like(rows)


def _window_floor(rows: Tensor, window_floor: Tensor) -> Tensor:
    table: list[Row] = []
    for row in read_rows(rows):
        if not row.pad and (row.position == 0 or row.flags & RowFlag.FLOOR):
            window_floor[row.slot] = row.position
        table.append(row if row.pad else row._replace(floor=int(window_floor[row.slot])))
    return torch.tensor(table, dtype=torch.int32)


def _take_rows_fake(x: Tensor, index: Tensor, boundary: str) -> Tensor:
    return x.new_empty((index.shape[0], *x.shape[1:]))


def _take_rows(x: Tensor, index: Tensor, boundary: str) -> Tensor:
    return x.index_select(0, index.clamp_min(0))  # a pad row takes a copy of row 0, which nothing stores


def _greedy_token_fake(logits: Tensor, rows: Tensor, slot_token: Tensor) -> Tensor:
    return rows.new_empty((logits.shape[0],))


def _greedy_token(logits: Tensor, rows: Tensor, slot_token: Tensor) -> Tensor:
    ranked = torch.where(logits.isnan(), float("-inf"), logits)
    top = ranked.amax(-1, keepdim=True)
    # The first true value wins; a row of NaN alone has none and gives 0.
    token = ((ranked == top) & ~logits.isnan()).to(torch.int32).argmax(-1).to(torch.int32)
    for i, row in enumerate(read_rows(rows)):
        if not row.pad and row.among_last(1, i):
            slot_token[row.slot] = token[i]
    return token


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        name="row_table",
        schema="(Tensor upload, Tensor slot_token, Tensor(a!) slot_position, Tensor(b!) page_table, "
               "Tensor(c!) replay_floor, int block_size) -> Tensor",
        capture=CaptureClass.CAPTURE, pads=PadRule.TABLE, tie_order=None,
        fake=_row_table_fake, reference=_row_table, native=NativeBody("row_table"),
    ),
    OpSpec(
        name="take_row_table",
        schema="(Tensor rows, Tensor index, int num_slots, str boundary) -> Tensor",
        capture=CaptureClass.CAPTURE, pads=PadRule.TABLE, tie_order=None,
        fake=_take_row_table_fake, reference=_take_row_table, native=NativeBody("take_row_table"),
    ),
    OpSpec(
        name="window_floor",
        schema="(Tensor rows, Tensor(a!) window_floor) -> Tensor",
        capture=CaptureClass.CAPTURE, pads=PadRule.TABLE, tie_order=None,
        fake=_window_floor_fake, reference=_window_floor, native=NativeBody("window_floor"),
    ),
    OpSpec(
        name="take_rows",
        schema="(Tensor x, Tensor index, str boundary) -> Tensor",
        capture=CaptureClass.CAPTURE, pads=PadRule.ROW, tie_order=None,
        fake=_take_rows_fake, reference=_take_rows,
    ),
    OpSpec(
        name="greedy_token",
        schema="(Tensor logits, Tensor rows, Tensor(a!) slot_token) -> Tensor",
        capture=CaptureClass.CAPTURE, pads=PadRule.SKIP, tie_order="the lowest token id; NaN never wins",
        fake=_greedy_token_fake, reference=_greedy_token, native=NativeBody("greedy_token"),
    ),
)
