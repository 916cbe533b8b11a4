"""drop_dead_calls: calls whose results nothing reads go, unless their schema says that they write.

    %a = rms_norm(%x, %w, eps), read by nothing   →   nothing
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import fx

from dsv41c.compiler.program import Program, written_arguments
from dsv41c.passes.base import GraphResult, Match, Pass, PassResult, Stage, per_method
from dsv41c.passes.engine.fusion import copied


@dataclass(frozen=True)
class DropDeadCalls(Pass):
    """Calls and placeholders that nothing reads go; a call that writes state stays, read or not."""

    name = "drop_dead_calls"
    stage = Stage.CANONICALIZE

    def apply(self, program: Program) -> PassResult:
        return per_method(program, self._rewrite, _is_dead)

    def _rewrite(self, method: str, graph: fx.Graph) -> GraphResult:
        copy, notes = copied(graph), list[Match]()
        for node in reversed(list(copy.nodes)):
            if _is_dead(node):
                copy.erase_node(node)
                notes.append(Match(method, node.name, "", (node.name,)))
        return GraphResult(copy, len(notes), tuple(notes))


def _is_dead(node: fx.Node) -> bool:
    return node.op in ("call_function", "placeholder") and not node.users and not written_arguments(node)
