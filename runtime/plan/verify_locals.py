"""Rules of a body's locals: each lies inside its base, its argument or the launch's scratch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dsv41c.runtime.plan.schema import DTYPES, ArgLocal, ConstantLocal, Local, ViewLocal
from dsv41c.runtime.plan.verify_arguments import KernelFacts
from dsv41c.runtime.plan.verify_geometry import (
    Range,
    add_offset,
    broken,
    check_index,
    check_offset,
    evaluate_extent,
    shape_at,
)


@dataclass(frozen=True)
class PlacedLocal:
    """The local that owns the bytes, and the bytes: of the scratch, of an argument or of a constant."""

    root: int
    bytes: Range


def place_local(
    local: Local, placed: Sequence[PlacedLocal], symbols: Mapping[str, int], scratch: int, where: str
) -> PlacedLocal:
    """At one number of rows, behind the locals that are `placed`, in a launch with `scratch` bytes of it."""
    index = len(placed)
    if isinstance(local, ConstantLocal):
        return PlacedLocal(index, Range("constant", 0, DTYPES[local.dtype].item_bytes))
    shape = shape_at(local.sizes, local.strides, local.dtype, symbols=symbols, where=where)
    if isinstance(local, ArgLocal):
        if local.index < 0:
            raise broken("argument index out of range", where, local.index, "at least 0")
        return PlacedLocal(index, Range(f"argument {local.index}", 0, shape.span_bytes))
    offset = evaluate_extent(local.offset, symbols, where)
    if isinstance(local, ViewLocal):
        check_index(local.of, index, "view base", where)
        base = placed[local.of]
        begin = add_offset(base.bytes.begin, offset, local.dtype, where)
        view = Range(base.bytes.region, begin, begin + shape.span_bytes)
        if view.begin < base.bytes.begin or view.end > base.bytes.end:
            raise broken("view outside its base", where, str(view), str(base.bytes))
        return PlacedLocal(base.root, view)
    check_offset(offset, DTYPES[local.dtype].item_bytes, offset, where)
    temp = Range("scratch", offset, offset + shape.span_bytes)
    if temp.end > scratch:
        raise broken("temporary outside the scratch", where, str(temp), f"an end of at most {scratch}")
    return PlacedLocal(index, temp)


def note_argument(local: Local, placed: PlacedLocal, rows: int, facts: KernelFacts) -> None:
    """Launches must bring this argument, with this dtype and as many bytes."""
    if isinstance(local, ArgLocal):
        facts.arguments.setdefault(local.index, local.dtype)
        span = max(placed.bytes.end, facts.span_bytes.get((rows, local.index), 0))
        facts.span_bytes[rows, local.index] = span
