"""Makes ATen calls in the form that the rules want: one view, one slice, no call twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from dsv41c.passes.engine.aten_values import (
    args_of,
    input_of,
    is_narrower,
    same_shape,
    shape,
)

A = torch.ops.aten
IsRows = Callable[[Any], bool]


class AtenCalls:
    """Calls of one graph. `is_rows(size)` says which sizes follow the number of rows."""

    def __init__(self, graph: fx.Graph, is_rows: IsRows) -> None:
        self.graph, self.is_rows = graph, is_rows
        self._known: dict[object, fx.Node] = {}  # ATen calls compute values and read no state: equal ones are one

    def first_equal(self, node: fx.Node) -> fx.Node:
        target = node.target
        if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten":
            return node
        return self._known.setdefault((target, repr(node.args), repr(node.kwargs)), node)

    def viewed(self, source: fx.Node, sizes: Sequence[Any], node: fx.Node | None = None) -> fx.Node:
        """`source` in another shape: one view of what is no view, or nothing."""
        if source.target is A.view.default and source is not node:
            source = input_of(source)
        if source.target is A._to_copy.default and is_narrower(input_of(source), source) and not same_shape(
                shape(source), sizes):
            inner = self.viewed(input_of(source), sizes)
            return self.make(source.target, (inner,), sizes, source, kwargs=dict(source.kwargs))
        if same_shape(shape(source), sizes):
            return source
        wanted = [-1 if self.is_rows(s) else s for s in sizes]
        if sum(s == -1 for s in wanted) > 1:
            assert node is not None
            return node
        if node is not None and node.target is A.view.default and args_of(node) == (source, wanted):
            return node
        return self.make(A.view.default, (source, wanted), sizes, source)

    def make(self, target: Any, args: tuple[Any, ...], sizes: Sequence[Any], like: fx.Node,
             dtype: torch.dtype | None = None, kwargs: dict[str, Any] | None = None) -> fx.Node:
        """A call of that result, or the equal one that was made before."""
        key = (target, repr(args), repr(kwargs or {}))
        if key in self._known:
            return self._known[key]
        new = self._known[key] = self.graph.call_function(target, args, kwargs)
        value = like.meta["val"]
        new.meta["val"] = value.new_empty(list(sizes), dtype=dtype or value.dtype)
        return new

    def sliced(self, source: fx.Node, dim: Any, start: int, end: int, sizes: Sequence[Any],
               node: fx.Node | None = None) -> fx.Node:
        """One part of a dimension: one slice of what is no slice, or nothing."""
        dim = dim % len(shape(source))
        if source.target is A.slice.Tensor and args_of(source)[1] == dim and len(args_of(source)) == 4:
            offset = args_of(source)[2]
            source, start, end = input_of(source), start + offset, end + offset
        if start == 0 and end == shape(source)[dim]:
            return source
        args = (source, dim, start, end)
        return node if node is not None and args_of(node) == args else self.make(A.slice.Tensor, args, sizes, source)
