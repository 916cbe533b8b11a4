"""merge_equal_calls: two calls of one op with equal arguments and no effects between them become one call.

    %a = rms_norm(%x, %w, eps); %b = rms_norm(%x, %w, eps)   →   %a = rms_norm(%x, %w, eps)
"""

from __future__ import annotations

import torch
from torch import fx

from dsv41c.passes.base import PassResult


class MergeEqualCalls:
    name = "merge_equal_calls"

    def apply(self, graph: fx.Graph) -> PassResult:
        """A call that reads state is merged only while no write to that state lies between the two."""
        result, num_matches = fx.Graph(), 0
        copied: dict[fx.Node, fx.Node] = {}
        seen: dict[object, fx.Node] = {}
        version: dict[fx.Node, int] = {}
        for node in graph.nodes:
            key = _key(node, copied, version)
            if key is not None and key in seen:
                copied[node] = seen[key]
                num_matches += 1
                continue
            copied[node] = result.node_copy(node, copied.__getitem__)
            copied[node].meta = dict(node.meta)
            for written in _written(node):
                version[copied[written]] = version.get(copied[written], 0) + 1
            if key is not None:
                seen[key] = copied[node]
        return PassResult(result, num_matches)


def _key(node: fx.Node, copied: dict[fx.Node, fx.Node], version: dict[fx.Node, int]) -> object:
    """Equal keys mean equal results; None for what may not be merged."""
    if node.op != "call_function" or any(_written(node)):
        return None
    args = fx.node.map_arg(node.args, lambda n: (copied[n], version.get(copied[n], 0)))
    kwargs = fx.node.map_arg(node.kwargs, lambda n: (copied[n], version.get(copied[n], 0)))
    return node.target, repr(args), repr(sorted(kwargs.items()))


def _written(node: fx.Node) -> list[fx.Node]:
    """Arguments that the call mutates, from its schema."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return []
    declared = node.target._schema.arguments
    return [a for a, d in zip(node.args, declared, strict=False)
            if isinstance(a, fx.Node) and d.alias_info is not None and d.alias_info.is_write]
