"""drop_local_collectives: exchanges among the ranks vanish where there is one rank.

    %s, %e, %w = expert_dispatch(%x, %expert, %weight, 1); f(%s, %e, %w)   →   f(%x, %expert, %weight)
    %r = expert_combine(%routed, 1); f(%r)                                 →   f(%routed)
"""

from __future__ import annotations

import operator
from dataclasses import dataclass

from torch import fx

from dsv41c.compiler.program import Program, argument, memory_root, op_name, written_arguments
from dsv41c.passes.base import GraphResult, Match, Note, Pass, PassResult, Refusal, Stage, per_method

_EXCHANGES = {"expert_dispatch": ("x", "expert", "weight"), "expert_combine": ("routed",)}  # copied, in order


@dataclass(frozen=True)
class DropLocalCollectives(Pass):
    """Exchanges among the ranks of a world of one are replaced by what they copy."""

    name = "drop_local_collectives"
    stage = Stage.CANONICALIZE

    def apply(self, program: Program) -> PassResult:
        """A copy stays where its source is written to in the method: then it is not the source."""
        return per_method(program, self._rewrite)

    def _rewrite(self, method: str, graph: fx.Graph) -> GraphResult:
        written = {memory_root(a) for n in graph.nodes for a in written_arguments(n)}
        new, copies, notes = fx.Graph(), dict[fx.Node, fx.Node](), list[Note]()
        dropped: dict[fx.Node, tuple[fx.Node, ...]] = {}
        for node in graph.nodes:
            owner = node.args[0] if node.target is operator.getitem else None
            if isinstance(owner, fx.Node) and owner in dropped:
                copies[node] = copies[dropped[owner][node.args[1]]]
                continue
            if op_name(node) in _EXCHANGES:
                note, sources = _judged(method, node, written)
                notes.append(note)
                if isinstance(note, Match):
                    dropped[node] = sources
                    if len(sources) == 1:
                        copies[node] = copies[sources[0]]
                    continue
            copies[node] = new.node_copy(node, copies.__getitem__)
            copies[node].meta = dict(node.meta)
        return GraphResult(new, len(dropped), tuple(notes))


def _judged(method: str, node: fx.Node, written: set[fx.Node]) -> tuple[Note, tuple[fx.Node, ...]]:
    """Whether the call is dropped, and what it copies."""
    given = [argument(node, name) for name in _EXCHANGES[str(op_name(node))]]
    sources = tuple(g for g in given if isinstance(g, fx.Node))
    ranks = argument(node, "world_size")
    if ranks != 1:
        return Refusal(method, node.name, f"{ranks} ranks"), sources
    changed = next((r for r in (*map(memory_root, sources), memory_root(node)) if r in written), None)
    if changed is not None:
        return Refusal(method, node.name, f"%{changed.name} is written to"), sources
    return Match(method, node.name, sources[0].name, (node.name,)), sources
