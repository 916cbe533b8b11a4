"""Launch configurations that were measured, as data: by kernel, architecture and class of shapes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Splits:
    """Parts of a row's keys that have a block each. `ladder`: (most rows, parts), few rows first; more rows have one
    part. `fixed`: parts at any number of rows, where a row must have the same bits in every bucket."""

    ladder: tuple[tuple[int, int], ...]
    fixed: int = 1

    @property
    def most(self) -> int:
        return max((self.fixed, *(parts for _, parts in self.ladder)))


# tools/bench/kernels.py times both; one wave of blocks of an H200 is 132. Nothing was measured on sm_100a.
ATTENTION_SPLITS: Mapping[tuple[str, str], Splits] = {
    ("sm_90a", "window and entries"): Splits(((33, 4), (66, 2))),
    ("sm_90a", "window"): Splits(()),
    ("sm_100a", "window and entries"): Splits(((33, 4), (66, 2))),
    ("sm_100a", "window"): Splits(()),
}
