"""Lives of a method's arena values at its bound, read back from the plan: for memory maps and for what peaks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dsv41c.runtime.plan.expr import evaluate
from dsv41c.runtime.plan.format import ALIGNMENT, DTYPES
from dsv41c.runtime.plan.schema import Absent, ArenaStorage, Method, ViewStorage


@dataclass(frozen=True)
class ArenaLife:
    """Bytes [offset, offset + num_bytes) belong to the value from launch `first` to `last`, both included, counted
    through all steps of the method."""

    value: int
    name: str
    offset: int
    num_bytes: int
    first: int
    last: int


def arena_lives(method: Method, bound: int) -> tuple[ArenaLife, ...]:
    """In the order of values, in a run of `bound` rows. A view counts for what it looks into, and so does a launch's
    scratch."""
    touched: dict[int, tuple[int, int]] = {}
    launches = (launch for step in method.steps for launch in step.launches)
    for moment, launch in enumerate(launches):
        used = [t.value for t in launch.tensors if not isinstance(t, Absent)]
        for index in [*used, *([] if launch.scratch is None else [launch.scratch])]:
            root = _root(method, index)
            touched[root] = touched.get(root, (moment, moment))[0], moment
    lives = []
    for index, (first, last) in sorted(touched.items()):
        value = method.values[index]
        if isinstance(value.storage, ArenaStorage):
            num_bytes = DTYPES[value.dtype].item_bytes
            for size in value.sizes:
                num_bytes *= evaluate(size, {method.symbol: bound})
            lives.append(ArenaLife(index, value.name, value.storage.offset, num_bytes, first, last))
    return tuple(lives)


def live_bytes(lives: Sequence[ArenaLife]) -> tuple[int, ...]:
    """Bytes alive at each launch up to the last one that touches the arena, each value aligned as in the arena."""
    change = [0] * (max((life.last for life in lives), default=-1) + 2)
    for life in lives:
        size = -(-life.num_bytes // ALIGNMENT) * ALIGNMENT
        change[life.first] += size
        change[life.last + 1] -= size
    alive, total = [], 0
    for step in change[:-1]:
        total += step
        alive.append(total)
    return tuple(alive)


def peak_bytes(method: Method, bound: int) -> int:
    """The most bytes alive at once: no layout of the arena can be smaller."""
    return max(live_bytes(arena_lives(method, bound)), default=0)


def _root(method: Method, index: int) -> int:
    while isinstance(storage := method.values[index].storage, ViewStorage):
        index = storage.of
    return index
