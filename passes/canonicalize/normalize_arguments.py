"""normalize_arguments: every call of a declared op gives all of its arguments by position, of the kinds in the schema.

    rms_norm(%x, weight=%w, eps=1)   →   rms_norm(%x, %w, 1.0)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from dsv41c.compiler.program import Program, argument, op_name
from dsv41c.passes.base import GraphResult, Match, Pass, PassResult, Stage, per_method
from dsv41c.passes.engine.fusion import copied

_VIEW = torch.ops.aten.view.default


@dataclass(frozen=True)
class NormalizeArguments(Pass):
    """All arguments of a call by position, defaults written out, numbers of the kinds that the schema declares."""

    name = "normalize_arguments"
    stage = Stage.CANONICALIZE

    def apply(self, program: Program) -> PassResult:
        return per_method(program, self._rewrite, _is_other)

    def _rewrite(self, method: str, graph: fx.Graph) -> GraphResult:
        copy = copied(graph)
        changed = [n for n in copy.nodes if _is_other(n)]
        for node in changed:
            node.args, node.kwargs = _normal(node), {}
        return GraphResult(copy, len(changed), tuple(Match(method, n.name, n.name, (n.name,)) for n in changed))


def _is_other(node: fx.Node) -> bool:
    if op_name(node) is None and node.target is not _VIEW:
        return False
    wanted = _normal(node)
    return bool(node.kwargs) or len(node.args) != len(wanted) or any(
        type(a) is not type(b) or a != b for a, b in zip(node.args, wanted, strict=True))


def _normal(node: fx.Node) -> tuple[Any, ...]:
    assert isinstance(node.target, torch._ops.OpOverload)
    return tuple(_of_kind(argument(node, a.name), str(a.type)) for a in node.target._schema.arguments)


def _of_kind(value: Any, declared: str) -> Any:
    """A Python number as the kind that the schema names, where that loses nothing; a list for a list."""
    if isinstance(value, bool) and declared in ("int", "float"):
        value = int(value)
    if declared == "float" and isinstance(value, int):
        return float(value)
    if declared == "int" and isinstance(value, float) and value.is_integer():
        return int(value)
    return list(value) if isinstance(value, tuple) else value
