"""Bucket ladders: which row counts a method is bound for ahead of time."""

from __future__ import annotations

from dsv41c.runtime.plan.errors import Dsv41cError

_SMALL = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
_STEP = 128  # above the last small rung


def ladder(largest: int) -> tuple[int, ...]:
    """Rungs from 1 to exactly `largest`: about half-octave steps up to 256, then steps of 128."""
    if largest < 1:
        raise Dsv41cError("DSV41C-E0402", "bucket ladder", found=f"largest bucket {largest}", needed="at least 1",
                          do="raise the bound of the method")
    rungs = {r for r in _SMALL if r < largest} | set(range(_SMALL[-1] + _STEP, largest, _STEP)) | {largest}
    return tuple(sorted(rungs))


def prefill_ladder(bound: int) -> tuple[int, ...]:
    """Rungs for the prefill methods: up to half the bound. Larger steps run eagerly, in the same arena,
    because their launch overhead no longer counts."""
    return ladder(max(1, bound // 2))
