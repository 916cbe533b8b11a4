"""Rules of the tensors that a kernel is given, by a launch or by a sequence: those its body uses, as it uses them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.runtime.plan.schema import Absent, Argument, InOut, Out
from dsv41c.runtime.plan.verify_geometry import Range, broken, check_index


@dataclass
class KernelFacts:
    """What launches of the kernel must respect. `arguments`: index to dtype; `span_bytes`: (rows, index);
    `alignments`: index to the bytes that the argument's begin is a multiple of.

    A body without locals says nothing about its arguments: `has_locals` is false and the sets stay empty.
    """

    has_locals: bool
    scratch_bytes: dict[int, int] = field(default_factory=dict)
    arguments: dict[int, str] = field(default_factory=dict)
    alignments: dict[int, int] = field(default_factory=dict)
    span_bytes: dict[tuple[int, int], int] = field(default_factory=dict)
    written: set[int] = field(default_factory=set)
    read_first: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class Operand:
    """A tensor that is given: its dtype, and its bytes at each number of rows that is checked.

    Those of a local that is an argument of a sequence count from the argument's begin.
    """

    dtype: str
    ranges: Mapping[int, Range]


def check_arguments(
    tensors: Sequence[Argument], facts: KernelFacts, operand: Callable[[int], Operand], symbol: str, where: str
) -> None:
    """A body with locals finds the tensors that it uses, large enough, aligned, and writable where it writes.

    `operand(value)` describes the tensor behind an argument; `symbol` is what the numbers of rows are of.
    """
    for index, dtype in sorted(facts.arguments.items()):
        check_index(index, len(tensors), "argument", where)
        argument = tensors[index]
        if isinstance(argument, Absent):
            raise broken("body uses an absent argument", where, f"argument {index}", "a tensor")
        given = operand(argument.value)
        if given.dtype != dtype:
            raise broken("argument of the wrong dtype", where, f"argument {index} {given.dtype}", dtype)
        for rows, found in given.ranges.items():
            if facts.span_bytes[rows, index] > found.end - found.begin:
                raise broken("argument is too small", where, f"argument {index}, {found.end - found.begin} bytes",
                             f"{facts.span_bytes[rows, index]} bytes at {symbol} = {rows}")
        _check_alignment(index, given, facts, where)
        if index in facts.written and not isinstance(argument, (Out, InOut)):
            raise broken("body writes an input", where, f"argument {index}", "out or inout")
        if isinstance(argument, Out) and (index not in facts.written or index in facts.read_first):
            raise _not_written(index, where)
    for index, argument in enumerate(tensors):
        if facts.has_locals and isinstance(argument, Out) and index not in facts.arguments:
            raise _not_written(index, where)


def _check_alignment(index: int, given: Operand, facts: KernelFacts, where: str) -> None:
    """A tensor map in a part looks into the argument."""
    unit = facts.alignments.get(index, 1)
    for found in given.ranges.values():
        if found.begin % unit:
            raise broken("tensor map is not aligned", where, f"argument {index} at byte {found.begin}",
                         f"a multiple of {unit}")


def _not_written(index: int, where: str) -> Dsv41cError:
    return broken("out is not written first", where, f"argument {index}",
                  "a body that writes it before reading")
