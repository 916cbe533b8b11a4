"""Speculation: drafts behind the newest token of a request, which tokens of a verified block stay, and rollback."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dsv41c.runtime.block_tokens import Block
from dsv41c.runtime.draft_schedule import ConfidenceSchedule, Schedule, static_schedule
from dsv41c.runtime.limits import Limits
from dsv41c.runtime.manifest import Manifest
from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.runtime.step_rows import NO_PAGE, ON_DEVICE, ActiveRequest

SCHEDULES = ("static", "confidence")
# Drafts of each request, at most so many, by any means: tokens never depend on them.
Propose = Callable[[Sequence[ActiveRequest], Sequence[int]], Sequence[Sequence[int]]]
Rollback = Callable[[npt.NDArray[np.int32], npt.NDArray[np.int32]], None]


class DraftExecutor(Protocol):
    """What drafts need of `dsv41c.runtime.load.Runtime`."""

    def draft(self, upload: Any, eager: bool = False) -> None: ...

    def output(self, name: str) -> npt.NDArray[Any]: ...

    def rollback(self, slots: Any, lengths: Any) -> None: ...


@dataclass
class Acceptance:
    """`steps`: verifications, one a request and step; of these drafts `proposed`, and `accepted` as the model's own."""

    steps: int = 0
    proposed: int = 0
    accepted: int = 0

    @property
    def mean_accepted(self) -> float:
        """Drafts accepted of one verification."""
        return self.accepted / self.steps if self.steps else 0.0

    def to_json(self) -> dict[str, int | float]:
        return {**vars(self), "mean_accepted": self.mean_accepted}


@dataclass
class Speculation:
    """Verifies up to `draft_len` drafts of each request in a step."""

    draft_len: int
    propose: Propose
    rollback: Rollback
    counts: Acceptance = field(default_factory=Acceptance)

    def prepare(self, going: Sequence[ActiveRequest], limits: Limits) -> None:
        """Drafts of the requests that go on. No more than tokens are wanted: rows behind the last one have no place."""
        rooms = [min(self.draft_len, one.num_tokens_left(limits) - 1) for one in going]
        if not any(rooms):
            return
        for one, room, drafts in zip(going, rooms, self.propose(going, rooms), strict=True):
            one.drafts = list(drafts[:room])

    def settle(self, blocks: Sequence[Block]) -> None:
        """Counts what was accepted. Behind the position of a request lie the rows of drafts that were wrong: its slot
        forgets them."""
        for block in blocks:
            if block.is_decode:
                self.counts.steps += 1
                self.counts.proposed += block.num_rows - 1
                self.counts.accepted += block.kept - 1
        wrong = [block.active for block in blocks if block.kept < block.num_rows]
        if wrong:
            self.rollback(np.array([one.slot for one in wrong], dtype=np.int32),
                          np.array([one.position for one in wrong], dtype=np.int32))


@dataclass(frozen=True)
class ModelDrafts:
    """Drafts of the model's own draft layers, one call for all requests."""

    executor: DraftExecutor
    schedule: Schedule
    eager: bool = False

    def __call__(self, going: Sequence[ActiveRequest], rooms: Sequence[int]) -> list[list[int]]:
        upload = np.zeros((len(going), 5), dtype=np.int32)
        upload[:, 0] = [one.slot for one in going]
        upload[:, 2] = [ON_DEVICE if one.holds_newest else one.tokens[-1] for one in going]
        upload[:, 4] = NO_PAGE
        self.executor.draft(upload, self.eager)
        widths = self.schedule(self.executor.output("confidence"), rooms)
        tokens = self.executor.output("draft_tokens")
        return [tokens[row, :width].tolist() for row, width in enumerate(widths)]


def model_speculation(executor: DraftExecutor, artifact: Path, draft_len: int, schedule: str = "static",
                      eager: bool = False) -> Speculation:
    """Verifies the drafts of the artifact's own draft layers; `executor` runs it. E0901 for what it does not hold."""
    limits = Limits.read(artifact)
    check_drafts(draft_len, schedule, limits)
    verifies = next(m for m in Manifest.read(artifact).read_plan().methods if m.name == "decode")
    chosen = static_schedule if schedule == "static" else ConfidenceSchedule(verifies, limits.max_num_batched_tokens)
    return Speculation(draft_len, ModelDrafts(executor, chosen, eager), executor.rollback)


def check_drafts(draft_len: int, schedule: str, limits: Limits) -> None:
    """E0901."""
    if not 0 <= draft_len <= limits.draft_len:
        raise Dsv41cError("DSV41C-E0901", "option --draft-len", found=str(draft_len),
                          needed=f"0 to {limits.draft_len}, the --draft-len of the artifact",
                          do="pass fewer drafts, or compile with a larger --draft-len")
    if schedule not in SCHEDULES:
        raise Dsv41cError("DSV41C-E0901", "option --draft-schedule", found=schedule,
                          needed=f"one of {', '.join(SCHEDULES)}", do="pass a legal value for --draft-schedule")
