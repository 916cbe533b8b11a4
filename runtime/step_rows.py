"""step_rows: the upload of one step from the rows that each active request contributes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

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
    """A request in a slot. `position` counts the rows that the slot's state already holds; `drafts` are guesses of what
    follows the newest token, for the next step to verify; `holds_newest`: the device knows that token as well. The slot
    of one with a prefix hit was placed by `resume`: it begins at position `Limits.first_replayed(prefix_length)`."""

    request: Request
    index: int
    slot: int
    position: int = 0
    prefix_length: int = 0
    tokens: list[int] = field(default_factory=list)
    drafts: list[int] = field(default_factory=list)
    holds_newest: bool = True
    logits: list[npt.NDArray[np.float32]] = field(default_factory=list)
    prompt_logprobs: list[float] = field(default_factory=list)

    @property
    def num_prompt_rows_left(self) -> int:
        return max(len(self.request.prompt_ids) - self.position, 0)

    def first_kept(self, limits: Limits) -> int:
        """The first position of the prompt whose row the decoder keeps."""
        if self.request.prompt_logprobs:
            return limits.first_replayed(self.prefix_length)
        return limits.first_kept(len(self.request.prompt_ids), self.prefix_length)

    def num_tokens_left(self, limits: Limits) -> int:
        """How many tokens it may still be given."""
        request = self.request
        return min(request.max_new_tokens, limits.max_model_len - len(request.prompt_ids)) - len(self.tokens)

    def finish_reason(self, limits: Limits) -> Literal["stop", "length"] | None:
        if self.tokens[-1] in limits.eos_ids and not self.request.ignore_eos:
            return "stop"
        return "length" if self.num_tokens_left(limits) <= 0 else None


@dataclass(frozen=True)
class Part:
    """The next `count` rows of a request in one step: of its prompt, or its newest token and drafts behind it."""

    active: ActiveRequest
    count: int

    @property
    def num_token_rows(self) -> int:
        """Of its last rows: those that a token may be taken from."""
        prompt = self.active.num_prompt_rows_left
        return self.count if not prompt else int(self.count >= prompt)

    @property
    def scores_prompt(self) -> bool:
        """Whether logits are wanted of all of its rows."""
        return self.active.request.prompt_logprobs and self.active.num_prompt_rows_left > 0

    @property
    def num_logit_rows(self) -> int:
        return self.count if self.scores_prompt else self.num_token_rows


def choose_parts(active: Sequence[ActiveRequest], max_rows: int, full_decoder_rows: int = 0) -> list[Part]:
    """One row for each decoding request first, then their drafts and then prompts, each in the given order until the
    step is full. Prompts whose log-probabilities are wanted share `full_decoder_rows` beside the one row that the plan
    has for each request."""
    decoding = [a for a in active if not a.num_prompt_rows_left]
    parts, room, full = [], max_rows - len(decoding), full_decoder_rows
    for each in decoding:
        verified = min(len(each.drafts), room)
        parts.append(Part(each, 1 + verified))
        room -= verified
    for waiting in (a for a in active if a.num_prompt_rows_left):
        count = min(waiting.num_prompt_rows_left, room)
        if count == 0:
            break
        if waiting.request.prompt_logprobs:
            count = min(count, 1 + full)
            full -= count - 1
        parts.append(Part(waiting, count))
        room -= count
    return parts


def num_left_out(part: Part, limits: Limits) -> int:
    """How many of the part's rows, its first ones, the decoder does not run on. A decode leaves none out."""
    if limits.runs_all_rows:
        return 0
    before = part.active.first_kept(limits) - part.active.position
    return min(max(before, 0), part.count)


def step_rows(parts: Sequence[Part], limits: Limits) -> tuple[Int32, Int32, Int32]:
    """upload int32 `[n, 5]`; the rows that the decoder keeps; of these the ones whose logits are wanted, the last
    ones of each part."""
    upload = np.concatenate([_rows(part, limits) for part in parts])
    kept = np.concatenate([np.arange(part.count) >= num_left_out(part, limits) for part in parts])
    asked = np.concatenate([np.arange(part.count) >= part.count - part.num_logit_rows for part in parts])
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
        begins = positions == part.active.first_kept(limits)
        if limits.runs_all_rows:
            begins |= positions == limits.first_replayed(prefix)
        flags[begins & (positions > 0)] |= FLOOR
    return flags


def _token_column(part: Part) -> Sequence[int]:
    active = part.active
    if active.num_prompt_rows_left:
        return active.request.prompt_ids[active.position : active.position + part.count]
    newest = ON_DEVICE if active.holds_newest else active.tokens[-1]
    return [newest, *active.drafts[: part.count - 1]]
