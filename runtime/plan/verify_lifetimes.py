"""Rule of reuse: two things that are alive at the same time share no byte."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dsv41c.runtime.plan.schema import Absent, ArenaStorage, Method
from dsv41c.runtime.plan.verify_dataflow import launches_of
from dsv41c.runtime.plan.verify_geometry import Range, broken, value_place
from dsv41c.runtime.plan.verify_values import Placed


@dataclass
class Lifetime:
    """Moments first to last, both included, in which these bytes belong to `place`."""

    place: str
    bytes: Range
    first: int
    last: int


def check_lifetimes(method: Method, placed: Sequence[Placed]) -> None:
    """Arena values, from their first to their last launch; views and scratch count for their root."""
    lives: dict[int, Lifetime] = {}
    for moment, launch in launches_of(method):
        used = [argument.value for argument in launch.tensors if not isinstance(argument, Absent)]
        for index in [*used, *([launch.scratch] if launch.scratch is not None else [])]:
            root = placed[index].root
            if isinstance(placed[root].storage, ArenaStorage):
                life = Lifetime(value_place(method, root), placed[root].hi, moment, moment)
                lives.setdefault(root, life).last = moment
    check_disjoint_lives(lives[root] for root in sorted(lives))


def check_disjoint_lives(lives: Iterable[Lifetime]) -> None:
    """Sweeps over the moments; only what is alive at once is compared."""
    alive: list[Lifetime] = []
    for life in sorted(lives, key=lambda each: each.first):
        alive = [other for other in alive if other.last >= life.first]
        for other in alive:
            if life.bytes.overlaps(other.bytes):
                raise broken("two live values overlap", life.place, f"{life.bytes}, also {other.place}",
                             f"bytes that are free from launch {life.first} to {life.last}")
        alive.append(life)
