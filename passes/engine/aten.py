"""The normal form of ATen calls: one spelling for shape changes, casts, constants and reductions.

`is_rows(size)` says which sizes follow the number of rows; a graph under a symbol and one traced at an example size
get the same form. Views stand where values are narrow: before a cast that widens, behind one that narrows.
Only rules that keep every bit are here. `x + 0` turns -0.0 into 0.0, so it goes for integers and
for values that are never negative alone; `x * 1`, `x - 0`, `x / 1` keep all bits.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from dsv41c.passes.engine import aten_shapes as rules
from dsv41c.passes.engine.aten_calls import AtenCalls, IsRows
from dsv41c.passes.engine.aten_pointwise import OVERLOADS, plain_numbers, pointwise
from dsv41c.passes.engine.aten_values import input_of, shape

A = torch.ops.aten
_SAME = (A.clone.default, A.alias.default, A.detach.default, A.lift_fresh_copy.default, A.contiguous.default)
_RESHAPES = (A.view.default, A._unsafe_view.default, A.reshape.default, A.unsqueeze.default, A.squeeze.default,
             A.squeeze.dim, A.squeeze.dims)
_POINTWISE = (A.mul.Tensor, A.add.Tensor, A.sub.Tensor, A.div.Tensor, A.where.self, A.bitwise_or.Tensor,
              A.bitwise_and.Tensor, A.bitwise_or.Scalar)
_REDUCTIONS = (A.mean.dim, A.sum.dim_IntList, A.amax.default)
_RULES: dict[Any, Callable[[AtenCalls, fx.Node], fx.Node]] = {
    A.slice.Tensor: rules.sliced, A.select.int: rules.selected, A.permute.default: rules.permuted,
    A.expand.default: rules.expanded, A._to_copy.default: rules.cast, A.pow.Tensor_Scalar: rules.squared,
    A.square.default: rules.squared, A.clamp.default: rules.clamped, A.clamp_min.default: rules.clamped,
    A.clamp_max.default: rules.clamped, A.embedding.default: rules.looked_up, A.index.Tensor: rules.looked_up,
    A.index_select.default: rules.looked_up, A._softmax.default: rules.numbered, A.cat.default: rules.numbered,
    A.gather.default: rules.numbered, A.scalar_tensor.default: rules.constant, A.full.default: rules.constant,
    **dict.fromkeys(_REDUCTIONS, rules.reduced),
}


def normalize(graph: fx.Graph, is_rows: IsRows) -> int:
    """Rewrites the graph in place; the number of calls that got another form."""
    calls, changed = AtenCalls(graph, is_rows), 0
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        with graph.inserting_before(node):
            new = calls.first_equal(_rewritten(calls, node))
        if new is not node:
            changed += 1
            node.replace_all_uses_with(new)
    for node in reversed(list(graph.nodes)):
        is_pure = isinstance(node.target, torch._ops.OpOverload) and not node.target._schema.is_mutable
        if node.op == "call_function" and not node.users and (is_pure or node.target is operator.getitem):
            graph.erase_node(node)
    return changed


def _rewritten(calls: AtenCalls, node: fx.Node) -> fx.Node:
    target = node.target
    if target is operator.getitem:
        return rules.member(calls, node)
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten":
        return node
    if target in _SAME:
        return input_of(node)
    if target in _RESHAPES:
        return calls.viewed(input_of(node), shape(node), node)
    if target in OVERLOADS:
        return _rewritten(calls, calls.make(OVERLOADS[target], node.args, shape(node), node))
    rule = _RULES.get(target)
    new = node if rule is None else rule(calls, node)
    if new is node and target in _POINTWISE:
        new = pointwise(calls, node)
    if new is node:
        plain_numbers(node)
    return new
