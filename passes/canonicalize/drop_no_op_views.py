"""drop_no_op_views: a view of a view becomes one view, and a view to the shape that is there goes.

    %a = view(%x, [-1, 4, 32]); %b = view(%a, [-1, 128])   →   %x, when it is [T, 128]

A view shares the memory of what it looks at, so that this holds for tensors that calls write, too. Whether two sizes
are equal is asked by their text: a comparison of symbols would bind them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import fx

from dsv41c.compiler.program import Program
from dsv41c.passes.base import GraphResult, Match, Pass, PassResult, Stage, per_method
from dsv41c.passes.engine.fusion import copied

_VIEW = torch.ops.aten.view.default


@dataclass(frozen=True)
class DropNoOpViews(Pass):
    """A view of a view becomes one view, and a view to the shape that is there goes."""

    name = "drop_no_op_views"
    stage = Stage.CANONICALIZE

    def apply(self, program: Program) -> PassResult:
        return per_method(program, self._rewrite, lambda node: _is_chain(node) or _is_same(node))

    def _rewrite(self, method: str, graph: fx.Graph) -> GraphResult:
        copy, notes = copied(graph), list[Match]()
        for node in list(copy.nodes):
            inner = node.args[0] if _is_chain(node) else None
            if isinstance(inner, fx.Node):
                node.replace_input_with(inner, inner.all_input_nodes[0])
                notes.append(Match(method, node.name, node.name, (inner.name, node.name)))
                if not inner.users:
                    copy.erase_node(inner)
            if _is_same(node):
                source = node.all_input_nodes[0]
                node.replace_all_uses_with(source)
                copy.erase_node(node)
                notes.append(Match(method, node.name, source.name, (node.name,)))
        return GraphResult(copy, len(notes), tuple(notes))


def _is_chain(node: fx.Node) -> bool:
    return node.target is _VIEW and node.all_input_nodes[0].target is _VIEW


def _is_same(node: fx.Node) -> bool:
    return node.target is _VIEW and _sizes(node) == _sizes(node.all_input_nodes[0])


def _sizes(node: fx.Node) -> list[str]:
    return [str(s) for s in node.meta["val"].shape]
