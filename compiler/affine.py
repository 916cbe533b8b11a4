"""Affine expressions in one symbol, fitted from the values that a shape takes at a few row counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.runtime.plan.expr import Binary, Expr

PROBE_ROWS = (3, 5, 8)  # two points fix the line, the third proves it


def linear_expr(slope: int, base: int, symbol: str) -> Expr:
    """slope * symbol + base in its shortest form."""
    if slope == 0:
        return base
    scaled: Expr = symbol if slope == 1 else Binary("*", slope, symbol)
    return scaled if base == 0 else Binary("+", scaled, base)


def fit(values: Sequence[int], symbol: str) -> Expr:
    """The expression that takes `values` at PROBE_ROWS; E0201 when they are not on a line."""
    (x0, x1, x2), (y0, y1, y2) = PROBE_ROWS, values
    slope = (y1 - y0) // (x1 - x0)
    base = y0 - slope * x0
    if base + slope * x1 != y1 or base + slope * x2 != y2:
        raise Dsv41cError("DSV41C-E0201", "shape of a kernel body", found=f"{tuple(values)} at rows {PROBE_ROWS}",
                          needed="sizes that grow linearly with the rows", do="rewrite the op's reference")
    return linear_expr(slope, base, symbol)


def product(factors: Sequence[Expr]) -> Expr:
    """Product of size expressions, constants folded."""
    constant, rest = 1, [f for f in factors if not isinstance(f, int)]
    for factor in factors:
        constant *= factor if isinstance(factor, int) else 1
    if not rest:
        return constant
    result = rest[0]
    for factor in rest[1:]:
        result = Binary("*", result, factor)
    return result if constant == 1 else Binary("*", constant, result)


def contiguous_strides(sizes: Sequence[Expr]) -> tuple[Expr, ...]:
    """Row-major element strides."""
    return tuple(product(sizes[i + 1 :]) for i in range(len(sizes)))


def total(terms: Sequence[Expr]) -> Expr:
    """Sum of expressions in one symbol; constants, and terms that are lines, are added up."""
    lines = [_line(term) for term in terms]
    symbols = [line.symbol for line in lines if line is not None and line.symbol is not None]
    slope = sum(line.slope for line in lines if line is not None)
    base = sum(line.base for line in lines if line is not None)
    rest = [term for term, line in zip(terms, lines, strict=True) if line is None]
    straight = linear_expr(slope, base, symbols[0]) if symbols else base
    result = straight if straight != 0 or not rest else rest.pop(0)
    for term in rest:
        result = Binary("+", result, term)
    return result


def round_up(expr: Expr, multiple: int) -> Expr:
    line = _line(expr)
    if line is not None and line.slope % multiple == 0:
        return linear_expr(line.slope, -(-line.base // multiple) * multiple, line.symbol or "")
    return Binary("*", multiple, Binary("ceildiv", expr, multiple))


class _Line(NamedTuple):
    slope: int
    base: int
    symbol: str | None  # None for a constant


def _line(expr: Expr) -> _Line | None:
    """What `linear_expr` made, taken apart; None for every other form."""
    if isinstance(expr, int):
        return _Line(0, expr, None)
    if isinstance(expr, str):
        return _Line(1, 0, expr)
    if expr.op == "*" and isinstance(expr.a, int) and isinstance(expr.b, str):
        return _Line(expr.a, 0, expr.b)
    inner = _line(expr.a) if expr.op == "+" and isinstance(expr.b, int) else None
    return inner._replace(base=inner.base + expr.b) if inner is not None and isinstance(expr.b, int) else None
