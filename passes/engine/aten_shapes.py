"""Rules of the normal form for shapes, parts, casts, reductions and look-ups: each gives the call in its one spelling.

A rule returns the node itself when there is nothing to change.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from dsv41c.passes.engine.aten_calls import AtenCalls
from dsv41c.passes.engine.aten_values import (
    args_of,
    attribute,
    bound,
    dtype_of,
    first_of,
    input_of,
    number,
    same_shape,
    shape,
    widens,
)

A = torch.ops.aten


def member(calls: AtenCalls, node: fx.Node) -> fx.Node:
    """A part of a split as a slice."""
    owner = input_of(node)
    if owner.target is not A.split_with_sizes.default:
        return node
    source, sizes, dim = input_of(owner), args_of(owner)[1], attribute(owner, "dim")
    start = sum(sizes[:args_of(node)[1]])
    return calls.sliced(source, dim, start, start + sizes[args_of(node)[1]], shape(node))


def sliced(calls: AtenCalls, node: fx.Node) -> fx.Node:
    source, dim = input_of(node), attribute(node, "dim")
    size = shape(source)[dim]
    start, end, step = (attribute(node, n) for n in ("start", "end", "step"))
    if not isinstance(size, int):
        return source if step == 1 and same_shape(shape(node), shape(source)) else node
    if step != 1:
        return _strided(calls, node, source, dim % len(shape(source)), step)
    return calls.sliced(source, dim, bound(start, size, 0), bound(end, size, size), shape(node), node)


def _strided(calls: AtenCalls, node: fx.Node, source: fx.Node, dim: int, step: Any) -> fx.Node:
    """Every `step`-th of a size that it divides, as one of the columns of a view."""
    size = shape(source)[dim]
    start, end = bound(attribute(node, "start"), size, 0), bound(attribute(node, "end"), size, size)
    if size % step or start >= step or end + step <= size + start:
        return node
    sizes = [*shape(source)[:dim], size // step, step, *shape(source)[dim + 1:]]
    table = calls.viewed(source, sizes)
    column = calls.sliced(table, dim + 1, start, start + 1, [*sizes[:dim + 1], 1, *sizes[dim + 2:]])
    return calls.viewed(column, shape(node))


def selected(calls: AtenCalls, node: fx.Node) -> fx.Node:
    source, dim, index = input_of(node), attribute(node, "dim"), attribute(node, "index")
    size = shape(source)[dim]
    if not isinstance(size, int):
        return node
    at = index % size
    sizes = list(shape(source))
    sizes[dim] = 1
    return calls.viewed(calls.sliced(source, dim, at, at + 1, sizes), shape(node))


def permuted(calls: AtenCalls, node: fx.Node) -> fx.Node:
    source, order = input_of(node), [d % len(shape(node)) for d in args_of(node)[1]]
    if source.target is A.permute.default:
        order = [args_of(source)[1][d] for d in order]
        source = input_of(source)
    sizes = shape(source)
    if [d for d in order if sizes[d] != 1] == [d for d in range(len(sizes)) if sizes[d] != 1]:
        return calls.viewed(source, shape(node))
    args = (source, order)
    return node if args_of(node) == args else calls.make(A.permute.default, args, shape(node), source)


def expanded(calls: AtenCalls, node: fx.Node) -> fx.Node:
    source = input_of(node)
    if source.target is A.expand.default:
        source = input_of(source)
    if same_shape(shape(source), shape(node)):
        return source
    known = any(calls.is_rows(s) for s in shape(source))
    sizes = [-1 if calls.is_rows(s) and known else s for s in args_of(node)[1]]
    args = (source, sizes)
    return node if args_of(node) == args else calls.make(node.target, args, shape(node), source)


def cast(calls: AtenCalls, node: fx.Node) -> fx.Node:
    """Casts keep the dtype alone. A wider value that comes from the narrow one goes back to it."""
    source, dtype = input_of(node), node.meta["val"].dtype
    if source.target is A._to_copy.default and widens(input_of(source).meta["val"].dtype, dtype_of(source)):
        source = input_of(source)
    if source.meta["val"].dtype == dtype:
        return source
    if source.target is A.view.default and dtype.itemsize < dtype_of(source).itemsize and dtype.is_floating_point:
        wide = input_of(source)
        inner = calls.make(node.target, (wide,), shape(wide), source, dtype, {"dtype": dtype})
        return calls.viewed(inner, shape(node))
    if args_of(node) == (source,) and node.kwargs == {"dtype": dtype}:
        return node
    return calls.make(node.target, (source,), shape(node), source, dtype, {"dtype": dtype})


def squared(calls: AtenCalls, node: fx.Node) -> fx.Node:
    if node.target is A.pow.Tensor_Scalar and args_of(node)[1] not in (2, 2.0):
        return node
    return calls.make(A.mul.Tensor, (input_of(node), input_of(node)), shape(node), node)


def clamped(calls: AtenCalls, node: fx.Node) -> fx.Node:
    low, high = node.kwargs.get("min"), node.kwargs.get("max")
    if node.target is A.clamp_min.default:
        low = attribute(node, "min")
    elif node.target is A.clamp_max.default:
        high = attribute(node, "max")
    else:
        low, high = attribute(node, "min"), attribute(node, "max")
    args = (input_of(node), number(low, node), number(high, node))
    if node.target is A.clamp.default and args_of(node) == args:
        return node
    return calls.make(A.clamp.default, args, shape(node), node)


def reduced(calls: AtenCalls, node: fx.Node) -> fx.Node:
    """Reduced dimensions count from the front and stay as size 1, with a view behind."""
    source, dims = input_of(node), attribute(node, "dim")
    rank = len(shape(source))
    places = sorted(d % rank for d in (dims if dims else range(rank)))
    value = node.meta["val"]
    wide = torch.float32 if node.target is A.amax.default else attribute(node, "dtype")
    if wide not in (None, value.dtype, torch.float32):
        return node
    kept = [1 if d in places else s for d, s in enumerate(shape(source))]
    if node.target is not A.amax.default and source.meta["val"].dtype != value.dtype:
        return node
    args = (source, places, True)
    if args_of(node) == args and not node.kwargs:
        return node
    return calls.viewed(calls.make(node.target, args, kept, node), shape(node))


def looked_up(calls: AtenCalls, node: fx.Node) -> fx.Node:
    """Rows of a table by ids. Wider ids are the same ids."""
    if node.target is A.embedding.default:
        source, index = args_of(node)[0], args_of(node)[1]
    elif node.target is A.index_select.default:
        source, dim, index = args_of(node)
        if dim != 0:
            return node
    else:
        source, indices = args_of(node)
        if len(indices) != 1 or indices[0] is None or indices[0].meta["val"].dtype == torch.bool:
            return node
        index = indices[0]
    if index.target is A._to_copy.default and widens(input_of(index).meta["val"].dtype, dtype_of(index)):
        index = input_of(index)
    args = (source, [index])
    if node.target is A.index.Tensor and args_of(node) == args:
        return node
    return calls.make(A.index.Tensor, args, shape(node), node)


def numbered(calls: AtenCalls, node: fx.Node) -> fx.Node:
    """Dimensions count from the front."""
    args = args_of(node)
    if len(args) < 2 or not isinstance(args[1], int) or args[1] >= 0:
        return node
    dim = args[1] % len(shape(first_of(node)))
    return calls.make(node.target, (args[0], dim, *args[2:]), shape(node), node, kwargs=dict(node.kwargs))


def constant(calls: AtenCalls, node: fx.Node) -> fx.Node:
    if shape(node) or node.target is A.scalar_tensor.default and node.kwargs == {"dtype": dtype_of(node)}:
        return node
    value = args_of(node)[0] if node.target is A.scalar_tensor.default else args_of(node)[1]
    new = calls.graph.call_function(A.scalar_tensor.default, (value,), {"dtype": dtype_of(node)})
    new.meta["val"] = node.meta["val"]
    return new
