"""Arena planning: lifetimes to byte offsets by a pure function, and a checker that shares no code with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dsv41c.runtime.plan.errors import Dsv41cError

ALIGNMENT = 64


@dataclass(frozen=True)
class Lifetime:
    """A buffer of `num_bytes` that is live from launch `first` to launch `last`, both included."""

    name: str
    num_bytes: int
    first: int
    last: int


@dataclass(frozen=True)
class Layout:
    offsets: Mapping[str, int]
    total_bytes: int


def aligned(num_bytes: int) -> int:
    return -(-num_bytes // ALIGNMENT) * ALIGNMENT


def plan_layout(lifetimes: Sequence[Lifetime]) -> Layout:
    """Largest first, each at the lowest offset that is free during its whole life. Deterministic."""
    placed: list[tuple[Lifetime, int]] = []
    for item in sorted(lifetimes, key=lambda x: (-x.num_bytes, x.first, x.name)):
        busy = sorted((offset, offset + aligned(other.num_bytes)) for other, offset in placed
                      if other.first <= item.last and item.first <= other.last)
        placed.append((item, _first_gap(busy, aligned(item.num_bytes))))
    total = max((offset + aligned(item.num_bytes) for item, offset in placed), default=0)
    return Layout({item.name: offset for item, offset in placed}, total)


def _first_gap(busy: Sequence[tuple[int, int]], size: int) -> int:
    offset = 0
    for begin, end in busy:
        if begin - offset >= size:
            break
        offset = max(offset, end)
    return offset


def check_layout(lifetimes: Sequence[Lifetime], layout: Layout) -> None:
    """E0401 unless every launch sees disjoint buffers inside the total. Walks launches, not pairs of lives."""
    last = max((x.last for x in lifetimes), default=-1)
    by_launch: list[list[Lifetime]] = [[] for _ in range(last + 1)]
    for item in lifetimes:
        for launch in range(item.first, item.last + 1):
            by_launch[launch].append(item)
    for launch, live in enumerate(by_launch):
        end, owner = 0, "nothing"
        for item in sorted(live, key=lambda x: layout.offsets[x.name]):
            offset = layout.offsets[item.name]
            if offset < end or offset % ALIGNMENT:
                raise _overlap(launch, f"{item.name} at {offset} under {owner} that ends at {end}")
            end, owner = offset + item.num_bytes, item.name
        if end > layout.total_bytes:
            raise _overlap(launch, f"{owner} ends at {end} in an arena of {layout.total_bytes}")


def _overlap(launch: int, found: str) -> Dsv41cError:
    return Dsv41cError("DSV41C-E0401", f"arena layout at launch {launch}", found=found,
                       needed="disjoint aligned buffers inside the arena", do="report this as a bug")
