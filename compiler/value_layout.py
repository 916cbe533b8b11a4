"""How a method's values lie in memory: sizes as expressions of its symbol, row-major strides, places in the arena."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import sympy
import torch

from dsv41c.compiler.affine import contiguous_strides, linear_expr
from dsv41c.graphs.memory import Lifetime, check_layout, plan_layout
from dsv41c.runtime.plan import schema
from dsv41c.runtime.plan.expr import Expr


def captured_sizes(val: torch.Tensor, symbol: str) -> tuple[Expr, ...]:
    """Each an integer, or slope * symbol + base."""
    return tuple(_size(size, symbol) for size in val.shape)


def renamed(expr: Expr, old: str, new: str) -> Expr:
    if isinstance(expr, str):
        return new if expr == old else expr
    if isinstance(expr, int):
        return expr
    return replace(expr, a=renamed(expr.a, old, new), b=renamed(expr.b, old, new))


def static(sizes: Sequence[Expr]) -> tuple[int, ...]:
    """Sizes that depend on no symbol."""
    assert all(isinstance(s, int) for s in sizes), sizes
    return tuple(s for s in sizes if isinstance(s, int))


def contiguous(name: str, dtype: str, sizes: tuple[Expr, ...], storage: schema.Storage, pads: str) -> schema.Value:
    return schema.Value(name, dtype, sizes, contiguous_strides(sizes), storage, pads)


def place_in_arena(values: Sequence[schema.Value], num_bytes: Callable[[schema.Value], int], first: Mapping[int, int],
                   last: Mapping[int, int]) -> tuple[tuple[schema.Value, ...], int]:
    """The values with their arena offsets, and the bytes of the arena. `num_bytes` at the symbol's bound: offsets that
    hold there serve every smaller size. `first`, `last`: the launches that touch a value, by its index."""
    lifetimes = [Lifetime(str(i), num_bytes(v), first[i], last[i])
                 for i, v in enumerate(values) if isinstance(v.storage, schema.ArenaStorage)]
    layout = plan_layout(lifetimes)
    check_layout(lifetimes, layout)
    placed = tuple(replace(v, storage=schema.ArenaStorage(layout.offsets[str(i)]))
                   if isinstance(v.storage, schema.ArenaStorage) else v for i, v in enumerate(values))
    return placed, layout.total_bytes


def _size(size: Any, symbol: str) -> Expr:
    if isinstance(size, int):
        return size
    expression = sympy.sympify(size.node.expr)
    (free,) = expression.free_symbols
    slope = expression.coeff(free, 1)
    return linear_expr(int(slope), int(expression - slope * free), symbol)
