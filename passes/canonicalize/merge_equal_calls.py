"""merge_equal_calls: two calls of one op with equal arguments and no write between them become one call.

    %a = rms_norm(%x, %w, eps); %b = rms_norm(%x, %w, eps)   →   %a = rms_norm(%x, %w, eps)
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import fx

from dsv41c.compiler.program import Program, memory_root, written_arguments
from dsv41c.passes.base import GraphResult, Match, Pass, PassResult, Stage, per_method


@dataclass(frozen=True)
class MergeEqualCalls(Pass):
    """Two calls of one op with equal arguments and no write between them become one call."""

    name = "merge_equal_calls"
    stage = Stage.CANONICALIZE

    def apply(self, program: Program) -> PassResult:
        """A call is merged only while nothing has written what it reads, nor the earlier result, in between."""
        return per_method(program, self._rewrite)

    def _rewrite(self, method: str, graph: fx.Graph) -> GraphResult:
        merged = _Merged()
        for node in graph.nodes:
            merged.take(node)
        notes = tuple(Match(method, site, made, (site,)) for site, made in merged.matches)
        return GraphResult(merged.graph, len(notes), notes)


@dataclass
class _Merged:
    """The new graph while it grows. Versions count writes by the tensor that owns the memory."""

    graph: fx.Graph = field(default_factory=fx.Graph)
    matches: list[tuple[str, str]] = field(default_factory=list)  # merged call, the call that stays
    _copied: dict[fx.Node, fx.Node] = field(default_factory=dict)
    _version: dict[fx.Node, int] = field(default_factory=dict)
    _seen: dict[object, tuple[fx.Node, int]] = field(default_factory=dict)  # with the result's version then

    def take(self, node: fx.Node) -> None:
        key = self._key(node)
        if key is not None and key in self._seen:
            earlier, version = self._seen[key]
            if self._version_of(earlier) == version:
                self._copied[node] = earlier
                self.matches.append((node.name, earlier.name))
                return
        copy = self.graph.node_copy(node, self._copied.__getitem__)
        copy.meta = dict(node.meta)
        self._copied[node] = copy
        for argument in written_arguments(node):
            root = memory_root(self._copied[argument])
            self._version[root] = self._version.get(root, 0) + 1
        if key is not None:
            self._seen[key] = (copy, self._version_of(copy))

    def _key(self, node: fx.Node) -> object:
        """Equal keys mean equal results; None for what may not be merged."""
        if node.op != "call_function" or any(written_arguments(node)):
            return None
        given = (list(node.args), sorted(node.kwargs.items()))
        return node.target, repr(fx.node.map_arg(given, self._versioned))

    def _versioned(self, node: fx.Node) -> tuple[fx.Node, int]:
        copy = self._copied[node]
        return copy, self._version_of(copy)

    def _version_of(self, node: fx.Node) -> int:
        return self._version.get(memory_root(node), 0)

