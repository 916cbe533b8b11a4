"""Byte ranges of tensors at given symbol values, and the error that every verifier rule raises."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.runtime.plan.expr import Expr, evaluate, never_falls, symbols_of, to_text
from dsv41c.runtime.plan.schema import DTYPES, MAX_BYTES, Launch, Method


@dataclass(frozen=True)
class Range:
    """Bytes [begin, end) of one region: arena, io, state, bridge or one weight."""

    region: str
    begin: int
    end: int

    def overlaps(self, other: Range) -> bool:
        return self.region == other.region and self.begin < other.end and other.begin < self.end

    def __str__(self) -> str:
        return f"{self.region} bytes {self.begin} to {self.end}"


def broken(subject: str, where: str, found: object, needed: object) -> Dsv41cError:
    """The error of a broken rule."""
    return Dsv41cError("DSV41C-E0502", subject, where=where, found=str(found), needed=str(needed),
                       do="rebuild the plan; it was changed or its compiler is wrong")


def launch_place(method: Method, index: int, launch: Launch) -> str:
    return f"method {method.name}, launch {index} {launch.name}"


def value_place(method: Method, index: int) -> str:
    return f"method {method.name}, value {index} {method.values[index].name}"


def check_index(index: int, count: int, what: str, where: str) -> None:
    if not 0 <= index < count:
        raise broken(f"{what} index out of range", where, index, f"0 to {count - 1}")


def evaluate_at(expr: Expr, symbols: Mapping[str, int], where: str) -> int:
    """Like evaluate, with the place in the error; a symbol of somebody else is a broken rule."""
    for symbol in sorted(symbols_of(expr)):
        if symbol not in symbols:
            raise broken("unknown symbol", where, f"symbol {symbol}", f"symbol {' '.join(symbols)}")
    try:
        return evaluate(expr, symbols)
    except Dsv41cError as error:
        raise Dsv41cError(error.code, error.subject, where=where, found=error.found, needed=error.needed,
                          do=error.do) from error


def evaluate_extent(expr: Expr, symbols: Mapping[str, int], where: str) -> int:
    """Of a size, stride or offset: never falls as the symbol grows, so that what holds at a point holds below."""
    if isinstance(expr, int):
        return expr
    value = evaluate_at(expr, symbols, where)
    if not never_falls(expr):
        raise broken("expression may fall as the symbol grows", where, to_text(expr),
                     "no symbol after - or as a divisor, no negative factor of one")
    return value


@dataclass(frozen=True)
class Shape:
    """Sizes and strides of a tensor at one value of its symbol."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str

    @property
    def span_bytes(self) -> int:
        """From the first element to the end of the last one."""
        last = sum((size - 1) * stride for size, stride in zip(self.sizes, self.strides, strict=True))
        return (last + 1) * DTYPES[self.dtype].item_bytes

    @property
    def is_contiguous(self) -> bool:
        return self.strides == tuple(math.prod(self.sizes[i + 1:]) for i in range(len(self.sizes)))


def shape_at(
    sizes: Sequence[Expr], strides: Sequence[Expr], dtype: str, *, symbols: Mapping[str, int], where: str
) -> Shape:
    """The evaluated shape, with sizes of at least 1, no negative stride and a bounded span."""
    if len(sizes) != len(strides):
        raise broken("sizes and strides differ in length", where, f"{len(sizes)} and {len(strides)}",
                     "equal lengths")
    shape = Shape(tuple(evaluate_extent(size, symbols, where) for size in sizes),
                  tuple(evaluate_extent(stride, symbols, where) for stride in strides), dtype)
    if any(size < 1 for size in shape.sizes):
        raise broken("size below 1", where, numbers(shape.sizes), "sizes of at least 1")
    if any(stride < 0 for stride in shape.strides):
        raise broken("negative stride", where, numbers(shape.strides), "strides of at least 0")
    if shape.span_bytes > MAX_BYTES:
        raise broken("tensor is too large", where, numbers(shape.sizes), f"at most {MAX_BYTES} bytes")
    return shape


def add_offset(base: int, elements: int, dtype: str, where: str) -> int:
    """Byte address of an element offset; it must be aligned for the dtype and bounded."""
    item = DTYPES[dtype].item_bytes
    begin = base + elements * item
    check_offset(begin, item, elements, where)
    return begin


def check_offset(begin: int, alignment: int, given: int, where: str) -> None:
    if not 0 <= begin <= MAX_BYTES:
        raise broken("offset out of range", where, given, f"a byte offset from 0 to {MAX_BYTES}")
    if begin % alignment:
        raise broken("offset is not aligned", where, f"byte {begin}", f"a multiple of {alignment}")


def numbers(values: Sequence[int]) -> str:
    return "[" + ",".join(str(value) for value in values) + "]"
