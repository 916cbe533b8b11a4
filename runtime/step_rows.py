"""step_rows: the upload of one step from the rows that each active request contributes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from dsv41c.runtime.limits import Limits
from dsv41c.runtime.requests import Request

START = 1  # FLAGS bit: the slot begins at position 0
FLOOR = 8  # FLAGS bit: the decoder's windows begin at this row
REPLAY = 16  # FLAGS bit: a prefix hit holds the row's entries already
HIT = 32  # FLAGS bit: the first row behind a prefix hit
ON_DEVICE = -1  # TOKEN: the one that the slot's last step chose
NO_PAGE = -1
Int32 = npt.NDArray[np.int32]


@dataclass(eq=False)  # two requests are never the same one
class ActiveRequest:
    """A request in a slot. `position` counts the rows that the slot's state already holds. The slot of one with a
    prefix hit was placed by `resume`: it begins at the position `Limits.first_replayed(prefix_length)`."""

    request: Request
    index: int
    slot: int
    position: int = 0
    prefix_length: int = 0
    tokens: list[int] = field(default_factory=list)
    logits: list[npt.NDArray[np.float32]] = field(default_factory=list)

    @property
    def num_prompt_rows_left(self) -> int:
        return max(len(self.request.prompt_ids) - self.position, 0)


@dataclass(frozen=True)
class Part:
    """The next `count` rows of a request in one step."""

    active: ActiveRequest
    count: int

    @property
    def gives_token(self) -> bool:
        """Whether the last of these rows is the last one the request knows."""
        return self.count >= self.active.num_prompt_rows_left


def choose_parts(active: Sequence[ActiveRequest], max_rows: int) -> list[Part]:
    """One row for each decoding request first, then prompts in the given order until the step is full."""
    parts = [Part(a, 1) for a in active if not a.num_prompt_rows_left]
    room = max_rows - len(parts)
    for waiting in (a for a in active if a.num_prompt_rows_left):
        count = min(waiting.num_prompt_rows_left, room)
        if count == 0:
            break
        parts.append(Part(waiting, count))
        room -= count
    return parts


def num_left_out(part: Part, limits: Limits) -> int:
    """How many of the part's rows, its first ones, the decoder does not run on. A decode leaves none out."""
    if limits.runs_all_rows:
        return 0
    before = first_kept(part, limits) - part.active.position
    return min(max(before, 0), part.count)


def first_kept(part: Part, limits: Limits) -> int:
    return limits.first_kept(len(part.active.request.prompt_ids), part.active.prefix_length)


def step_rows(parts: Sequence[Part], limits: Limits) -> tuple[Int32, Int32, Int32]:
    """upload int32 `[n, 5]`; the rows that the decoder keeps; of these the ones whose logits are wanted: the last row
    of each part that gives a token."""
    upload = np.concatenate([_rows(part, limits) for part in parts])
    kept = np.concatenate([np.arange(part.count) >= num_left_out(part, limits) for part in parts])
    ends = np.cumsum([part.count for part in parts]) - 1
    asked = ends[[part.gives_token for part in parts]]
    return upload, np.flatnonzero(kept).astype(np.int32), (np.cumsum(kept)[asked] - 1).astype(np.int32)


def _rows(part: Part, limits: Limits) -> Int32:
    """Columns SLOT, OFFSET, TOKEN, FLAGS, PAGE. Slot s owns the pages s*k .. s*k+k-1."""
    active, offsets = part.active, np.arange(part.count)
    positions = active.position + offsets
    pages = active.slot * limits.pages_per_slot + positions // limits.block_size
    rows = np.empty((part.count, 5), dtype=np.int32)
    rows[:, 0], rows[:, 1], rows[:, 2] = active.slot, offsets, _token_column(part)
    rows[:, 3] = _flags(part, positions, limits)
    rows[:, 4] = np.where((positions % limits.block_size == 0) & (positions >= active.prefix_length), pages, NO_PAGE)
    return rows


def _flags(part: Part, positions: npt.NDArray[np.int64], limits: Limits) -> npt.NDArray[np.int64]:
    """Where the decoder runs on the rows in front of the kept ones too, its windows begin at the first of them, and
    anew at the first kept one."""
    prefix = part.active.prefix_length
    if not prefix:
        flags = np.full(part.count, START if part.active.position == 0 else 0)
    else:
        flags = np.where(positions < prefix, REPLAY, 0) | np.where(positions == limits.first_replayed(prefix), HIT, 0)
    if limits.suffix_keep_tokens:
        begins = positions == first_kept(part, limits)
        if limits.runs_all_rows:
            begins |= positions == limits.first_replayed(prefix)
        flags[begins & (positions > 0)] |= FLOOR
    return flags


def _token_column(part: Part) -> Sequence[int]:
    active = part.active
    if active.num_prompt_rows_left:
        return active.request.prompt_ids[active.position : active.position + part.count]
    return [ON_DEVICE if active.request.is_greedy else active.tokens[-1]]
