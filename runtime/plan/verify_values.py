"""Rules of a method's values; placing them gives each one's root and byte range at every point."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dsv41c.runtime.plan.expr import evaluate, symbols_of
from dsv41c.runtime.plan.schema import (
    MAX_BYTES,
    MAX_DIMS,
    ArenaStorage,
    Bridge,
    BridgeStorage,
    IoStorage,
    Method,
    Plan,
    State,
    StateStorage,
    Storage,
    Symbol,
    Value,
    ViewStorage,
    Weight,
    WeightStorage,
)
from dsv41c.runtime.plan.verify_geometry import (
    Range,
    Shape,
    add_offset,
    broken,
    check_index,
    evaluate_extent,
    numbers,
    shape_at,
    value_place,
)
from dsv41c.runtime.plan.verify_tables import check_range


@dataclass(frozen=True)
class Placed:
    """A value's root (itself unless it is a view), the root's storage and its bytes at each of the method's points."""

    root: int
    storage: Storage
    ranges: Mapping[int, Range]

    @property
    def hi(self) -> Range:
        return self.ranges[max(self.ranges)]


def points_of(method: Method, symbol: Symbol) -> list[int]:
    """Values of the symbol at which everything is checked: the least and the most rows of a run, and the buckets,
    ascending."""
    return sorted({symbol.lo, method.run_rows(symbol.hi), *method.buckets})


def place_values(plan: Plan, method: Method, symbol: Symbol) -> list[Placed]:
    """Checks every value of the method; views only look at earlier values."""
    if not 0 <= method.arena_bytes <= MAX_BYTES:
        raise broken("bad memory size", f"method {method.name}", method.arena_bytes, f"0 to {MAX_BYTES}")
    points, placed = points_of(method, symbol), list[Placed]()
    for index, value in enumerate(method.values):
        where = value_place(method, index)
        _check_form(value, symbol.name, where)
        if isinstance(value.storage, ViewStorage):
            check_index(value.storage.of, index, "view base", where)
        ranges = {point: _range_at(plan, method, value, placed, (symbol.name, point), where) for point in points}
        if isinstance(value.storage, ViewStorage):
            base = placed[value.storage.of]
            placed.append(Placed(base.root, base.storage, ranges))
        else:
            placed.append(Placed(index, value.storage, ranges))
    return placed


def _check_form(value: Value, symbol: str, where: str) -> None:
    if len(value.sizes) > MAX_DIMS:
        raise broken("too many dimensions", where, len(value.sizes), f"at most {MAX_DIMS}")
    has_rows = bool(value.sizes) and symbol in symbols_of(value.sizes[0])
    if has_rows and value.pads == "none":
        raise broken("pad rule missing", where, 'pads "none"',
                     f'"rows" or "valid": its first size grows with {symbol}')


def _range_at(
    plan: Plan, method: Method, value: Value, placed: list[Placed], point: tuple[str, int], where: str
) -> Range:
    name, number = point
    symbols = {name: number}
    shape = shape_at(value.sizes, value.strides, value.dtype, symbols=symbols, where=where)
    storage = value.storage
    if isinstance(storage, ViewStorage):
        base = placed[storage.of].ranges[number]
        begin = add_offset(base.begin, evaluate_extent(storage.offset, symbols, where), value.dtype, where)
        view = Range(base.region, begin, begin + shape.span_bytes)
        if view.begin < base.begin or view.end > base.end:
            raise broken("view outside its base", where, str(view), str(base))
        return view
    if not shape.is_contiguous:
        raise broken("strides are not contiguous", where,
                     f"{numbers(shape.strides)} for {numbers(shape.sizes)}",
                     "contiguous strides outside views")
    return _root_range(plan, method, storage, shape, where)


def _root_range(plan: Plan, method: Method, storage: Storage, shape: Shape, where: str) -> Range:
    if isinstance(storage, ArenaStorage):
        bytes_ = Range("arena", storage.offset, storage.offset + shape.span_bytes)
        check_range(bytes_, method.arena_bytes, where)
        return bytes_
    if isinstance(storage, IoStorage):
        bytes_ = Range("io", storage.offset, storage.offset + shape.span_bytes)
        check_range(bytes_, plan.memory.io_bytes, where)
        return bytes_
    if isinstance(storage, WeightStorage):
        check_index(storage.index, len(plan.weights), "weight", where)
        _check_same(shape, plan.weights[storage.index], where, at_most=False)
        return Range(f"weight {storage.index}", 0, shape.span_bytes)
    if isinstance(storage, StateStorage):
        check_index(storage.index, len(plan.state), "state", where)
        _check_same(shape, plan.state[storage.index], where, at_most=False)
        begin = plan.state[storage.index].offset
        return Range("state", begin, begin + shape.span_bytes)
    assert isinstance(storage, BridgeStorage)
    check_index(storage.index, len(plan.bridges), "bridge", where)
    _check_same(shape, plan.bridges[storage.index], where, at_most=True)
    begin = plan.bridges[storage.index].offset
    return Range("bridge", begin, begin + shape.span_bytes)


def _check_same(shape: Shape, entry: Weight | State | Bridge, where: str, *, at_most: bool) -> None:
    """The value has the table's dtype and sizes; a bridge may be used up to its capacity in rows."""
    sizes = shape.sizes
    same_rows = len(sizes) == len(entry.sizes) > 0 and sizes[1:] == entry.sizes[1:]
    fits = at_most and same_rows and sizes[0] <= entry.sizes[0]
    if shape.dtype != entry.dtype or not (fits or sizes == entry.sizes):
        raise broken("value differs from its table entry", where, f"{shape.dtype} {numbers(sizes)}",
                     f"{entry.dtype} {numbers(entry.sizes)} of {entry.name}")


def columns_of(value: Value, symbol: str) -> int:
    """Elements in one row; 0 for a value without rows. Every size but the first must be constant."""
    if not value.sizes or symbol not in symbols_of(value.sizes[0]):
        return 0
    columns = 1
    for size in value.sizes[1:]:
        columns *= evaluate(size, {})
    return columns
