"""How many drafts of each request a step verifies: all of them, or as many as their confidence pays for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dsv41c.runtime.plan.costs import costs_of, step_ns
from dsv41c.runtime.plan.schema import Method


class Schedule(Protocol):
    """confidence float32 [n, block]: how likely each draft is to be accepted when those before it are; rooms: the most
    drafts of each request, at most block. Returns the drafts to verify of each request."""

    def __call__(self, confidence: npt.NDArray[Any], rooms: Sequence[int]) -> list[int]: ...


def static_schedule(confidence: npt.NDArray[Any], rooms: Sequence[int]) -> list[int]:
    return list(rooms)


@dataclass(frozen=True)
class ConfidenceSchedule:
    """Grants drafts in the order of their chances while a step gives more tokens for its time. The time is the cost of
    the plan's ladder, and no clock: the same confidences always give the same widths."""

    method: Method  # the one that verifies: decode
    max_rows: int

    def __call__(self, confidence: npt.NDArray[Any], rooms: Sequence[int]) -> list[int]:
        """A chance never exceeds that of the draft before it, and of equals the earlier goes first: what is granted is
        a prefix of each request's drafts."""
        known = np.nan_to_num(confidence.astype(np.float64), nan=0.0)
        chances = np.cumprod(known, axis=1)
        open_ = np.arange(chances.shape[1]) < np.asarray(rooms)[:, None]
        owners, _ = np.nonzero(open_)
        order = np.argsort(-chances[open_], kind="stable")
        gains = np.concatenate([[0.0], np.cumsum(chances[open_][order])])
        count = len(rooms)
        rates = [(count + gain) / self._cost(count + budget) for budget, gain in enumerate(gains)
                 if count + budget <= self.max_rows]
        best = int(np.argmax(rates))
        return [int(n) for n in np.bincount(owners[order[:best]], minlength=count)]

    def _cost(self, rows: int) -> int:
        ladder = self.method.ladder
        return max(step_ns(self.method.buckets, ladder.above, rows, costs_of(ladder)), 1)
