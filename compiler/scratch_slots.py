"""ScratchSlots: byte ranges of a launch's scratch, each used by one tensor after another, sizes over the rows."""

from __future__ import annotations

from dataclasses import dataclass, field

from dsv41c.compiler.affine import round_up, total
from dsv41c.runtime.plan.expr import Binary, Expr
from dsv41c.runtime.plan.format import ALIGNMENT


@dataclass
class _Slot:
    sizes: list[Expr]
    last: int  # moment of its last use so far


@dataclass
class ScratchSlots:
    """Moments must not fall from call to call. Offsets are known when all users are."""

    _slots: list[_Slot] = field(default_factory=list)

    def take(self, size: Expr, first: int, last: int) -> int:
        """A slot for `size` bytes from moment `first` to `last`, both included: a dead one that has held this size,
        any dead one, or a new one."""
        dead = [i for i, slot in enumerate(self._slots) if slot.last < first]
        fitting = [i for i in dead if size in self._slots[i].sizes]
        number = next(iter(fitting or dead), len(self._slots))
        if number == len(self._slots):
            self._slots.append(_Slot([], last))
        slot = self._slots[number]
        slot.last = last
        if size not in slot.sizes:
            slot.sizes.append(size)
        return number

    def offsets(self) -> tuple[Expr, ...]:
        """The begin of each slot, and behind them the end of the last one."""
        sizes = [round_up(_largest(slot.sizes), ALIGNMENT) for slot in self._slots]
        return tuple(total(sizes[:n]) for n in range(len(sizes) + 1))


def _largest(sizes: list[Expr]) -> Expr:
    """Halves are compared first: a chain of maxima would be as deep as it is long."""
    if len(sizes) == 1:
        return sizes[0]
    middle = len(sizes) // 2
    left, right = _largest(sizes[:middle]), _largest(sizes[middle:])
    if isinstance(left, int) and isinstance(right, int):
        return max(left, right)
    return Binary("max", left, right)
