"""Integer expressions of a plan: an int, a symbol or [op, a, b], evaluated exactly within int64."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dsv41c.runtime.plan.errors import Dsv41cError

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
MAX_DEPTH = 64


@dataclass(frozen=True)
class Binary:
    op: str
    a: Expr
    b: Expr


Expr = int | str | Binary

# The one operator table; the C++ evaluator has the same entries (plan_generated.h) and a test compares them.
OPERATORS: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "ceildiv": lambda a, b: -(-a // b),
    "min": min,
    "max": max,
}
DIVISIONS = frozenset({"floordiv", "ceildiv"})


def evaluate(expr: Expr, symbols: Mapping[str, int]) -> int:
    """The value; E0504 on an unknown symbol, a divisor below 1 or a result outside int64."""
    if isinstance(expr, int):
        return expr
    if isinstance(expr, str):
        if expr not in symbols:
            known = ", ".join(sorted(symbols)) or "none"
            raise _error("unknown symbol", f"symbol {expr}", f"one of: {known}", "rebuild the plan")
        return symbols[expr]
    a, b = evaluate(expr.a, symbols), evaluate(expr.b, symbols)
    if expr.op in DIVISIONS and b <= 0:
        raise _error("division by less than 1", f"{a} {expr.op} {b}", "a divisor of at least 1",
                     "rebuild the plan")
    result = OPERATORS[expr.op](a, b)
    if not INT64_MIN <= result <= INT64_MAX:
        raise _error("result outside int64", f"{a} {expr.op} {b}", "a result that int64 holds",
                     "lower the bound of the symbol")
    return result


@functools.lru_cache(maxsize=1 << 16)
def symbols_of(expr: Expr) -> frozenset[str]:
    """Every symbol that the expression reads."""
    if isinstance(expr, Binary):
        return symbols_of(expr.a) | symbols_of(expr.b)
    return frozenset({expr}) if isinstance(expr, str) else frozenset()


@functools.lru_cache(maxsize=1 << 16)  # asked at every point of every size
def never_falls(expr: Expr) -> bool:
    """By form alone: the value never falls as a symbol grows. False says only that the form does not show it."""
    if not isinstance(expr, Binary) or not symbols_of(expr):
        return True
    a, b = expr.a, expr.b
    if expr.op == "-" or expr.op in DIVISIONS:
        return never_falls(a) and not symbols_of(b)
    if expr.op == "*":
        return (never_falls(a) and never_falls(b) and (not symbols_of(b) or _is_never_negative(a))
                and (not symbols_of(a) or _is_never_negative(b)))
    return never_falls(a) and never_falls(b)


def _is_never_negative(expr: Expr) -> bool:
    """By form, for symbols of at least 1."""
    if isinstance(expr, Binary):
        return expr.op != "-" and _is_never_negative(expr.a) and _is_never_negative(expr.b)
    return isinstance(expr, str) or expr >= 0


def to_text(expr: Expr) -> str:
    """Compact JSON, for messages."""
    if isinstance(expr, Binary):
        return f'["{expr.op}",{to_text(expr.a)},{to_text(expr.b)}]'
    return f'"{expr}"' if isinstance(expr, str) else str(expr)


def to_json(expr: Expr) -> object:
    """The expression as JSON values."""
    if isinstance(expr, Binary):
        return [expr.op, to_json(expr.a), to_json(expr.b)]
    return expr


def from_json(node: object, path: str = "$", depth: int = 0) -> Expr:
    """The expression in `node`; E0504 names `path` when it is none."""
    if depth > MAX_DEPTH:
        raise _error("expression too deep", f"more than {MAX_DEPTH} levels", f"at most {MAX_DEPTH} levels",
                     "rebuild the plan", path)
    if isinstance(node, str) and node:
        return node
    if isinstance(node, int) and not isinstance(node, bool) and INT64_MIN <= node <= INT64_MAX:
        return node
    if isinstance(node, list) and len(node) == 3 and isinstance(node[0], str) and node[0] in OPERATORS:
        return Binary(node[0], from_json(node[1], f"{path}[1]", depth + 1),
                      from_json(node[2], f"{path}[2]", depth + 1))
    raise _error("not an expression", describe(node), "an int64, a symbol or [op, a, b] with op one of "
                 + " ".join(OPERATORS), "rebuild the plan", path)


def describe(node: object) -> str:
    """What a JSON node is, in words short enough for a message."""
    if isinstance(node, bool):
        return "true" if node else "false"
    if node is None:
        return "null"
    if isinstance(node, str):
        return f'"{node}"' if len(node) <= 40 else f"a string of {len(node)} characters"
    if isinstance(node, int):
        return f"integer {node}" if INT64_MIN <= node <= INT64_MAX else "an integer outside int64"
    if isinstance(node, float):
        return "a floating point number"
    if isinstance(node, list):
        return f"an array of {len(node)}"
    return f"an object of {len(node)} keys" if isinstance(node, dict) else type(node).__name__


def _error(subject: str, found: str, needed: str, do: str, where: str | None = None) -> Dsv41cError:
    return Dsv41cError("DSV41C-E0504", subject, where=where, found=found, needed=needed, do=do)
