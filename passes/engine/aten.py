"""The normal form of ATen calls: one spelling for shape changes, casts, constants and reductions.

`is_rows(size)` says which sizes follow the number of rows; a graph under a symbol and one traced at an example size
get the same form. Views stand where values are narrow: before a cast that widens, behind one that narrows.
Only rules that keep every bit are here. `x + 0` turns -0.0 into 0.0, so it goes for integers and
for values that are never negative alone; `x * 1`, `x - 0`, `x / 1` keep all bits.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import fx

from dsv41c.compiler.program import argument

A = torch.ops.aten
IsRows = Callable[[Any], bool]
_SAME = (A.clone.default, A.alias.default, A.detach.default, A.lift_fresh_copy.default, A.contiguous.default)
_RESHAPES = (A.view.default, A._unsafe_view.default, A.reshape.default, A.unsqueeze.default, A.squeeze.default,
             A.squeeze.dim, A.squeeze.dims)
_POINTWISE = (A.mul.Tensor, A.add.Tensor, A.sub.Tensor, A.div.Tensor, A.where.self, A.bitwise_or.Tensor,
              A.bitwise_and.Tensor, A.bitwise_or.Scalar)
_NEVER_NEGATIVE = (A.abs.default, A.sigmoid.default, A._softmax.default, A.exp.default, A.sqrt.default, A.rsqrt.default)
_REDUCTIONS = (A.mean.dim, A.sum.dim_IntList, A.amax.default)
_UNIT = {A.mul.Tensor: 1, A.div.Tensor: 1, A.sub.Tensor: 0, A.add.Tensor: 0}
_BOTH = (A.mul.Tensor, A.add.Tensor)


class NormalForm:
    """Rewrites one graph in place. `changed` counts the calls that got another form."""

    def __init__(self, graph: fx.Graph, is_rows: IsRows) -> None:
        self.graph, self.is_rows, self.changed = graph, is_rows, 0
        self._known: dict[object, fx.Node] = {}  # ATen calls compute values and read no state: equal ones are one

    def run(self) -> int:
        for node in list(self.graph.nodes):
            if node.op != "call_function":
                continue
            with self.graph.inserting_before(node):
                new = self._rewritten(node)
            new = self._first_equal(new)
            if new is not node:
                self.changed += 1
                node.replace_all_uses_with(new)
        for node in reversed(list(self.graph.nodes)):
            pure = isinstance(node.target, torch._ops.OpOverload) and not node.target._schema.is_mutable
            if node.op == "call_function" and not node.users and (pure or node.target is operator.getitem):
                self.graph.erase_node(node)
        return self.changed

    def _first_equal(self, node: fx.Node) -> fx.Node:
        target = node.target
        if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten":
            return node
        return self._known.setdefault((target, repr(node.args), repr(node.kwargs)), node)

    def _rewritten(self, node: fx.Node) -> fx.Node:
        target = node.target
        if target is operator.getitem:
            return self._member(node)
        if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten":
            return node
        if target in _SAME:
            return _input(node)
        if target in _RESHAPES:
            return self.viewed(_input(node), shape(node), node)
        rule = _RULES.get(target)
        new = node if rule is None else rule(self, node)
        if new is node and target in _POINTWISE:
            new = self._pointwise(node)
        if new is node:
            self._plain_numbers(node)
        return new

    def viewed(self, source: fx.Node, sizes: Sequence[Any], node: fx.Node | None = None) -> fx.Node:
        """`source` in another shape: one view of what is no view, or nothing."""
        if source.target is A.view.default and source is not node:
            source = _input(source)
        if source.target is A._to_copy.default and _is_narrower(_input(source), source) and not same_shape(
                shape(source), sizes):
            inner = self.viewed(_input(source), sizes)
            return self.make(source.target, (inner,), sizes, source, kwargs=dict(source.kwargs))
        if same_shape(shape(source), sizes):
            return source
        wanted = [-1 if self.is_rows(s) else s for s in sizes]
        if sum(s == -1 for s in wanted) > 1:
            assert node is not None
            return node
        if node is not None and node.target is A.view.default and node.args == (source, wanted):
            return node
        return self.make(A.view.default, (source, wanted), sizes, source)

    def make(self, target: Any, args: tuple[Any, ...], sizes: Sequence[Any], like: fx.Node,
             dtype: torch.dtype | None = None, kwargs: dict[str, Any] | None = None) -> fx.Node:
        key = (target, repr(args), repr(kwargs or {}))
        if key in self._known:
            return self._known[key]
        new = self._known[key] = self.graph.call_function(target, args, kwargs)
        value = like.meta["val"]
        new.meta["val"] = value.new_empty(list(sizes), dtype=dtype or value.dtype)
        return new

    def _member(self, node: fx.Node) -> fx.Node:
        """A part of a split as a slice."""
        owner = _input(node)
        if owner.target is not A.split_with_sizes.default:
            return node
        source, sizes, dim = _input(owner), owner.args[1], argument(owner, "dim")
        start = sum(sizes[:node.args[1]])  # type: ignore[arg-type, index, misc]
        return self._sliced(source, dim, start, start + sizes[node.args[1]], shape(node))  # type: ignore[index]

    def slice(self, node: fx.Node) -> fx.Node:
        source, dim = _input(node), argument(node, "dim")
        size = shape(source)[dim]  # type: ignore[index]
        start, end, step = (argument(node, n) for n in ("start", "end", "step"))
        if not isinstance(size, int):
            return source if step == 1 and same_shape(shape(node), shape(source)) else node
        if step != 1:
            return self._strided(node, source, dim % len(shape(source)), step)  # type: ignore[operator]
        return self._sliced(source, dim, _bound(start, size, 0), _bound(end, size, size), shape(node), node)

    def _strided(self, node: fx.Node, source: fx.Node, dim: int, step: Any) -> fx.Node:
        """Every `step`-th of a size that it divides, as one of the columns of a view."""
        size = shape(source)[dim]
        start, end = _bound(argument(node, "start"), size, 0), _bound(argument(node, "end"), size, size)
        if size % step or start >= step or end + step <= size + start:
            return node
        sizes = [*shape(source)[:dim], size // step, step, *shape(source)[dim + 1:]]
        table = self.viewed(source, sizes)
        column = self._sliced(table, dim + 1, start, start + 1, [*sizes[:dim + 1], 1, *sizes[dim + 2:]])
        return self.viewed(column, shape(node))

    def select(self, node: fx.Node) -> fx.Node:
        source, dim, index = _input(node), argument(node, "dim"), argument(node, "index")
        size = shape(source)[dim]  # type: ignore[index]
        if not isinstance(size, int):
            return node
        at = index % size  # type: ignore[operator]
        sizes = list(shape(source))
        sizes[dim] = 1  # type: ignore[index]
        return self.viewed(self._sliced(source, dim, at, at + 1, sizes), shape(node))

    def _sliced(self, source: fx.Node, dim: Any, start: int, end: int, sizes: Sequence[Any],
                node: fx.Node | None = None) -> fx.Node:
        dim = dim % len(shape(source))
        if source.target is A.slice.Tensor and source.args[1] == dim and len(source.args) == 4:
            offset = source.args[2]
            source, start, end = _input(source), start + offset, end + offset  # type: ignore[operator]
        if start == 0 and end == shape(source)[dim]:
            return source
        args = (source, dim, start, end)
        return node if node is not None and node.args == args else self.make(A.slice.Tensor, args, sizes, source)

    def permute(self, node: fx.Node) -> fx.Node:
        source, order = _input(node), [d % len(shape(node)) for d in node.args[1]]  # type: ignore[union-attr]
        if source.target is A.permute.default:
            order = [source.args[1][d] for d in order]  # type: ignore[index]
            source = _input(source)
        sizes = shape(source)
        if [d for d in order if sizes[d] != 1] == [d for d in range(len(sizes)) if sizes[d] != 1]:
            return self.viewed(source, shape(node))
        args = (source, order)
        return node if node.args == args else self.make(A.permute.default, args, shape(node), source)

    def expand(self, node: fx.Node) -> fx.Node:
        source = _input(node)
        if source.target is A.expand.default:
            source = _input(source)
        if same_shape(shape(source), shape(node)):
            return source
        known = any(self.is_rows(s) for s in shape(source))
        sizes = [-1 if self.is_rows(s) and known else s for s in node.args[1]]  # type: ignore[union-attr]
        return node if node.args == (source, sizes) else self.make(node.target, (source, sizes), shape(node), source)

    def cast(self, node: fx.Node) -> fx.Node:
        """Casts keep the dtype alone. A wider value that comes from the narrow one goes back to it."""
        source, dtype = _input(node), node.meta["val"].dtype
        if source.target is A._to_copy.default and _widens(_input(source).meta["val"].dtype, _dtype(source)):
            source = _input(source)
        if source.meta["val"].dtype == dtype:
            return source
        if source.target is A.view.default and dtype.itemsize < _dtype(source).itemsize and dtype.is_floating_point:
            inner = self.make(node.target, (_input(source),), shape(_input(source)), source, dtype, {"dtype": dtype})
            return self.viewed(inner, shape(node))
        if node.args == (source,) and node.kwargs == {"dtype": dtype}:
            return node
        return self.make(node.target, (source,), shape(node), source, dtype, {"dtype": dtype})

    def square(self, node: fx.Node) -> fx.Node:
        if node.target is A.pow.Tensor_Scalar and node.args[1] not in (2, 2.0):
            return node
        return self.make(A.mul.Tensor, (_input(node), _input(node)), shape(node), node)

    def clamp(self, node: fx.Node) -> fx.Node:
        low, high = node.kwargs.get("min"), node.kwargs.get("max")
        if node.target is A.clamp_min.default:
            low = argument(node, "min")
        elif node.target is A.clamp_max.default:
            high = argument(node, "max")
        else:
            low, high = argument(node, "min"), argument(node, "max")
        args = (_input(node), _number(low, node), _number(high, node))
        if node.target is A.clamp.default and node.args == args:
            return node
        return self.make(A.clamp.default, args, shape(node), node)

    def reduction(self, node: fx.Node) -> fx.Node:
        """Reduced dimensions count from the front and stay as size 1, with a view behind."""
        source, dims = _input(node), argument(node, "dim")
        rank = len(shape(source))
        places = sorted(d % rank for d in (dims if dims else range(rank)))  # type: ignore[union-attr]
        value = node.meta["val"]
        wide = torch.float32 if node.target is A.amax.default else argument(node, "dtype")
        if wide not in (None, value.dtype, torch.float32):
            return node
        kept = [1 if d in places else s for d, s in enumerate(shape(source))]
        if node.target is not A.amax.default and source.meta["val"].dtype != value.dtype:
            return node
        args = (source, places, True)
        if node.args == args and not node.kwargs:
            return node
        return self.viewed(self.make(node.target, args, kept, node), shape(node))

    def lookup(self, node: fx.Node) -> fx.Node:
        """Rows of a table by ids. Wider ids are the same ids."""
        if node.target is A.embedding.default:
            source, index = node.args[0], node.args[1]
        elif node.target is A.index_select.default:
            source, dim, index = node.args
            if dim != 0:
                return node
        else:
            source, indices = node.args
            if len(indices) != 1 or indices[0] is None or indices[0].meta["val"].dtype == torch.bool:  # type: ignore
                return node
            index = indices[0]  # type: ignore[index]
        if index.target is A._to_copy.default and _widens(_input(index).meta["val"].dtype, _dtype(index)):
            index = _input(index)  # type: ignore[arg-type]
        args = (source, [index])
        if node.target is A.index.Tensor and node.args == args:
            return node
        return self.make(A.index.Tensor, args, shape(node), node)

    def numbered(self, node: fx.Node) -> fx.Node:
        """Dimensions count from the front."""
        at = 1
        rank = len(shape(_first(node)))
        if len(node.args) > at and isinstance(node.args[at], int) and node.args[at] < 0:  # type: ignore[operator]
            node.args = (*node.args[:at], node.args[at] % rank, *node.args[at + 1:])  # type: ignore[operator]
            self.changed += 1
        return node

    def constant(self, node: fx.Node) -> fx.Node:
        if shape(node) or node.target is A.scalar_tensor.default and node.kwargs == {"dtype": _dtype(node)}:
            return node
        value = node.args[0] if node.target is A.scalar_tensor.default else node.args[1]
        new = self.graph.call_function(A.scalar_tensor.default, (value,), {"dtype": _dtype(node)})
        new.meta["val"] = node.meta["val"]
        return new

    def _pointwise(self, node: fx.Node) -> fx.Node:
        if all(_constant_of(a) is not None for a in node.args[:2]) and node.target in _FOLDS:
            return self._folded(node)
        if node.target in _UNIT and self._is_unit(node):
            return _input(node)
        args = list(node.args)
        for place, given in enumerate(args):
            if isinstance(given, fx.Node):
                others = [a for i, a in enumerate(args) if i != place and isinstance(a, fx.Node)]
                args[place] = self._unexpanded(given, others, shape(node))
                constant = _constant_of(given)
                if place == 1 and isinstance(args[0], fx.Node) and constant is not None and node.target in _FOLDS:
                    args[1] = constant
        if node.target in _BOTH and isinstance(args[1], fx.Node) and _constant_of(args[0]) is not None:
            args[:2] = [args[1], _constant_of(args[0])]
        if args != list(node.args):
            return self._pointwise(self.make(node.target, tuple(args), shape(node), node, kwargs=dict(node.kwargs)))
        return node

    def _unexpanded(self, given: fx.Node, others: Sequence[fx.Node], result: Sequence[Any]) -> fx.Node:
        """The operand without an expansion or leading sizes of 1 that the other operands imply."""
        rest = [shape(o) for o in others]
        is_own = given.target is A.expand.default and len(given.users) == 1
        if is_own and self._covers([shape(_input(given)), *rest], result):
            given = _input(given)
        sizes = list(shape(given))
        while sizes and sizes[0] == 1 and self._covers([sizes[1:], *rest], result):
            sizes = sizes[1:]
        return given if len(sizes) == len(shape(given)) else self.viewed(given, sizes)

    def _covers(self, shapes: Sequence[Sequence[Any]], result: Sequence[Any]) -> bool:
        """Whether operands of these shapes broadcast to the result."""
        if max(map(len, shapes)) != len(result):
            return False
        padded = [[1] * (len(result) - len(s)) + list(s) for s in shapes]
        return all(any(_equal(p[d], result[d]) for p in padded) for d in range(len(result)))

    def _is_unit(self, node: fx.Node) -> bool:
        source, value = _first(node), node.args[1]
        if isinstance(value, fx.Node) or value != _UNIT[node.target] or node.kwargs:
            return False
        if source.meta["val"].dtype != _dtype(node):
            return False
        return node.target is not A.add.Tensor or not _dtype(node).is_floating_point or _never_negative(source)

    def _folded(self, node: fx.Node) -> fx.Node:
        value = _FOLDS[node.target](*[_constant_of(a) for a in node.args[:2]])
        new = self.graph.call_function(A.scalar_tensor.default, (value,), {"dtype": _dtype(node)})
        new.meta["val"] = node.meta["val"]
        return new

    def _plain_numbers(self, node: fx.Node) -> None:
        node.args = tuple(_number(a, node) if isinstance(a, int | float) and i == 1 and node.target in _SCALED else a
                          for i, a in enumerate(node.args))


_FOLDS: dict[Any, Callable[[Any, Any], Any]] = {A.mul.Tensor: operator.mul, A.add.Tensor: operator.add,
                                               A.sub.Tensor: operator.sub, A.div.Tensor: operator.truediv}
_SCALED = (*_FOLDS, A.add.Scalar, A.mul.Scalar, A.gt.Scalar)
_RULES: dict[Any, Callable[[NormalForm, fx.Node], fx.Node]] = {
    A.slice.Tensor: NormalForm.slice, A.select.int: NormalForm.select, A.permute.default: NormalForm.permute,
    A.expand.default: NormalForm.expand, A._to_copy.default: NormalForm.cast, A.pow.Tensor_Scalar: NormalForm.square,
    A.square.default: NormalForm.square, A.clamp.default: NormalForm.clamp, A.clamp_min.default: NormalForm.clamp,
    A.clamp_max.default: NormalForm.clamp, A.embedding.default: NormalForm.lookup,
    A.index_select.default: NormalForm.lookup, A.index.Tensor: NormalForm.lookup, A._softmax.default:
    NormalForm.numbered, A.cat.default: NormalForm.numbered, A.gather.default: NormalForm.numbered,
    A.scalar_tensor.default: NormalForm.constant, A.full.default: NormalForm.constant,
    **dict.fromkeys(_REDUCTIONS, NormalForm.reduction),
}
_OVERLOADS = {A.add.Scalar: A.add.Tensor, A.mul.Scalar: A.mul.Tensor, A.sub.Scalar: A.sub.Tensor,
              A.div.Scalar: A.div.Tensor}


def _of_tensor_overload(form: NormalForm, node: fx.Node) -> fx.Node:
    new = form.make(_OVERLOADS[node.target], node.args, shape(node), node)
    return form._rewritten(new)


_RULES.update(dict.fromkeys(_OVERLOADS, _of_tensor_overload))


def shape(node: fx.Node) -> list[Any]:
    return list(node.meta["val"].shape)


def same_shape(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return len(one) == len(other) and all(map(_equal, one, other))


def _equal(one: Any, other: Any) -> bool:
    """Of symbols by name: a comparison would bind them."""
    return one == other if isinstance(one, int) and isinstance(other, int) else str(one) == str(other)


def _input(node: fx.Node) -> fx.Node:
    source = node.args[0]
    assert isinstance(source, fx.Node)
    return source


def _first(node: fx.Node) -> fx.Node:
    return node.all_input_nodes[0]


def _dtype(node: fx.Node) -> torch.dtype:
    dtype: torch.dtype = node.meta["val"].dtype
    return dtype


def _widens(narrow: torch.dtype, wide: torch.dtype) -> bool:
    return (narrow, wide) in ((torch.bfloat16, torch.float32), (torch.int32, torch.int64))


def _is_narrower(one: fx.Node, other: fx.Node) -> bool:
    return _dtype(one).itemsize < _dtype(other).itemsize and _dtype(other).is_floating_point


def _bound(index: Any, size: int, default: int) -> int:
    if index is None:
        return default
    return max(0, min(index + size if index < 0 else index, size))


def _never_negative(node: fx.Node) -> bool:
    if node.target in (A.view.default, A.slice.Tensor, A.amax.default, A.sum.dim_IntList, A.mean.dim):
        return _never_negative(_input(node))
    is_square = node.target is A.mul.Tensor and node.args[0] is node.args[1]
    return is_square or node.target in _NEVER_NEGATIVE


def _constant_of(value: Any) -> Any:
    """The number of a constant without dimensions, or of a literal; None for a value."""
    if isinstance(value, fx.Node):
        return value.args[0] if value.target is A.scalar_tensor.default else None
    return value


def _number(value: Any, node: fx.Node) -> Any:
    """A number beside floats as the shortest decimal that is the same float32."""
    if value is None or isinstance(value, bool) or not _dtype(_first(node)).is_floating_point:
        return value
    value = float(value)
    short = float(str(np.float32(value)))
    return short if float(np.float32(value)) == value else value
