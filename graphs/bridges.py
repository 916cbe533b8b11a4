"""What breaks write for later steps: each such value gets a bridge that lives from its break to its last reader."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dsv41c.graphs.cut import CutSet, NamedBreak


@dataclass(frozen=True)
class Effects:
    """The memory that one call reads, and that of its new outputs: views and members count as what they look into."""

    reads: frozenset[int]
    makes: frozenset[int]


@dataclass(frozen=True)
class BridgeLife:
    """Steps of the method, both included: that of the break, and that of the last reader."""

    first: int
    last: int


def find_bridges(cut_set: CutSet, effects: Sequence[Effects]) -> dict[int, BridgeLife]:
    """By memory, in the order in which breaks make it. `effects` has one entry for each call of the method."""
    lives: dict[int, BridgeLife] = {}
    made: dict[int, int] = {}  # memory -> step of the break that made it
    for number, step in enumerate(cut_set.steps):
        calls = (step.call,) if isinstance(step, NamedBreak) else step.calls
        for call in calls:
            for memory in sorted(effects[call].reads & made.keys()):
                if made[memory] < number:
                    lives[memory] = BridgeLife(made[memory], number)
        if isinstance(step, NamedBreak):
            made |= dict.fromkeys(sorted(effects[step.call].makes - made.keys()), number)
    return {memory: lives[memory] for memory in made if memory in lives}
