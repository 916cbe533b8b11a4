"""Rules of the normal form for calls element by element: units, constants, expanded operands, numbers."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from dsv41c.passes.engine.aten_calls import AtenCalls
from dsv41c.passes.engine.aten_values import (
    args_of,
    constant_of,
    dtype_of,
    equal,
    first_of,
    input_of,
    never_negative,
    number,
    shape,
)

A = torch.ops.aten
_UNIT: dict[Any, int] = {A.mul.Tensor: 1, A.div.Tensor: 1, A.sub.Tensor: 0, A.add.Tensor: 0}
_BOTH = (A.mul.Tensor, A.add.Tensor)
_FOLDS: dict[Any, Callable[[Any, Any], Any]] = {A.mul.Tensor: operator.mul, A.add.Tensor: operator.add,
                                               A.sub.Tensor: operator.sub, A.div.Tensor: operator.truediv}
_SCALED = (*_FOLDS, A.add.Scalar, A.mul.Scalar, A.gt.Scalar)
OVERLOADS: dict[Any, Any] = {A.add.Scalar: A.add.Tensor, A.mul.Scalar: A.mul.Tensor, A.sub.Scalar: A.sub.Tensor,
                             A.div.Scalar: A.div.Tensor}


def pointwise(calls: AtenCalls, node: fx.Node) -> fx.Node:
    """The call without units, constants and expansions that change nothing."""
    if all(constant_of(a) is not None for a in args_of(node)[:2]) and node.target in _FOLDS:
        return _folded(calls, node)
    if node.target in _UNIT and _is_unit(node):
        return input_of(node)
    args = list(args_of(node))
    for place, given in enumerate(args):
        if isinstance(given, fx.Node):
            others = [a for i, a in enumerate(args) if i != place and isinstance(a, fx.Node)]
            args[place] = _unexpanded(calls, given, others, shape(node))
            if place == 1 and isinstance(args[0], fx.Node) and constant_of(given) is not None and node.target in _FOLDS:
                args[1] = constant_of(given)
    if node.target in _BOTH and isinstance(args[1], fx.Node) and constant_of(args[0]) is not None:
        args[:2] = [args[1], constant_of(args[0])]
    if args != list(args_of(node)):
        return pointwise(calls, calls.make(node.target, tuple(args), shape(node), node, kwargs=dict(node.kwargs)))
    return node


def _unexpanded(calls: AtenCalls, given: fx.Node, others: Sequence[fx.Node], result: Sequence[Any]) -> fx.Node:
    """The operand without an expansion or leading sizes of 1 that the other operands imply."""
    rest = [shape(o) for o in others]
    is_own = given.target is A.expand.default and len(given.users) == 1
    if is_own and _covers([shape(input_of(given)), *rest], result):
        given = input_of(given)
    sizes = list(shape(given))
    while sizes and sizes[0] == 1 and _covers([sizes[1:], *rest], result):
        sizes = sizes[1:]
    return given if len(sizes) == len(shape(given)) else calls.viewed(given, sizes)


def _covers(shapes: Sequence[Sequence[Any]], result: Sequence[Any]) -> bool:
    """Whether operands of these shapes broadcast to the result."""
    if max(map(len, shapes)) != len(result):
        return False
    padded = [[1] * (len(result) - len(s)) + list(s) for s in shapes]
    return all(any(equal(p[d], result[d]) for p in padded) for d in range(len(result)))


def _is_unit(node: fx.Node) -> bool:
    source, value = first_of(node), args_of(node)[1]
    if isinstance(value, fx.Node) or value != _UNIT[node.target] or node.kwargs:
        return False
    if source.meta["val"].dtype != dtype_of(node):
        return False
    return node.target is not A.add.Tensor or not dtype_of(node).is_floating_point or never_negative(source)


def _folded(calls: AtenCalls, node: fx.Node) -> fx.Node:
    value = _FOLDS[node.target](*[constant_of(a) for a in args_of(node)[:2]])
    new = calls.graph.call_function(A.scalar_tensor.default, (value,), {"dtype": dtype_of(node)})
    new.meta["val"] = node.meta["val"]
    return new


def plain_numbers(node: fx.Node) -> None:
    """Numbers beside floats as the shortest decimals, in place."""
    node.args = tuple(number(a, node) if isinstance(a, int | float) and i == 1 and node.target in _SCALED else a
                      for i, a in enumerate(args_of(node)))
