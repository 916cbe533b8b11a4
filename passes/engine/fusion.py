"""Fusion: a pass that replaces the composition of one declared op by a call of it, wherever the guards allow."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import fx

from dsv41c.compiler.ops.catalog import OPS
from dsv41c.compiler.ops.spec import OpSpec
from dsv41c.compiler.program import Program, op_name
from dsv41c.passes.base import GraphResult, Match, Note, Pass, PassResult, Refusal, Stage, per_method
from dsv41c.passes.engine.guards import GUARDS, Site, call_arguments, make_site, value_of
from dsv41c.passes.engine.insertion import insert_call
from dsv41c.passes.engine.pattern import Pattern, patterns_of
from dsv41c.passes.engine.search import Search
from dsv41c.passes.engine.values import Evaluations


@dataclass(frozen=True)
class Fusion(Pass):
    """The op's composition is the pattern. `ops`: names of the fused ops, tried in this order at each site.

    `anchor`: the primitive at whose calls the patterns are tried, or several of them; calls of it that do not become
    part of a fused call are the refusals. A pattern is tried at the anchors that occur in it, the first of its steps.
    """

    stage: ClassVar[Stage] = Stage.FUSE
    ops: ClassVar[tuple[str, ...]]
    anchor: ClassVar[str | tuple[str, ...]]

    def apply(self, program: Program) -> PassResult:
        return per_method(program, self._rewrite, self._is_anchor)

    def stands_against(self, site: Site) -> str | None:
        """A guard of this pass alone, asked behind those of every fusion."""
        return None

    def _is_anchor(self, node: fx.Node) -> bool:
        name = op_name(node)
        return name is not None and (name == self.anchor if isinstance(self.anchor, str) else name in self.anchor)

    def _rewrite(self, method: str, graph: fx.Graph) -> GraphResult:
        copy = copied(graph)
        sites = [n for n in copy.nodes if self._is_anchor(n)]
        notes: list[Note] = []
        evaluations = Evaluations()
        for anchor in sites:
            if anchor.graph is copy and not anchor._erased:
                notes.append(self._fuse(method, copy, anchor, evaluations))
        copy.lint()
        return GraphResult(copy, sum(isinstance(n, Match) for n in notes), tuple(notes))

    def _fuse(self, method: str, graph: fx.Graph, anchor: fx.Node, evaluations: Evaluations) -> Note:
        reasons = []
        for name in self.ops:
            for pattern in _patterns(name):
                site, reason = self._site(OPS[name], pattern, anchor, evaluations)
                if site is not None:
                    return Match(method, anchor.name, *replace(graph, site))
                reasons.append(reason)
        return Refusal(method, anchor.name, max(reasons, key=lambda r: r[0])[1])

    def _site(self, spec: OpSpec, pattern: Pattern, anchor: fx.Node,
              evaluations: Evaluations) -> tuple[Site, tuple[int, str]] | tuple[None, tuple[int, str]]:
        """The site, or how far the attempt came (guards come last) and what stood against it."""
        step = next((i for i, s in enumerate(pattern.steps) if s.op == op_name(anchor)), None)
        if step is None:
            return None, (-1, f"no {spec.name} has a call of {op_name(anchor)}")
        search, refused = Search(pattern), ""
        position: dict[fx.Node, int] = {}
        for binding in search.around(anchor, step):
            position = position or {node: n for n, node in enumerate([*anchor.graph.nodes, anchor.graph._root])}
            site = make_site(spec, pattern, binding, position, evaluations)
            reason = next((r for guard in (*GUARDS, self.stands_against) if (r := guard(site)) is not None), None)
            if reason is None:
                return site, (0, "")
            refused = refused or reason
        return None, (len(pattern.steps) + 1, refused) if refused else (search.depth, search.reason)


@functools.cache
def _patterns(op: str) -> tuple[Pattern, ...]:
    return tuple(patterns_of(OPS[op], OPS))


def replace(graph: fx.Graph, site: Site) -> tuple[str, tuple[str, ...]]:
    """Put the fused call into the graph; returns its name and the names of the calls it replaces."""
    names = tuple(n.name for n in site.nodes)
    call, replaced = insert_call(graph, site, _values(site))
    for old, new in replaced:
        old.replace_all_uses_with(new)
    for node in sorted(site.taken, key=site.position.__getitem__, reverse=True):
        graph.erase_node(node)
    return call.name, names


def _values(site: Site) -> Any:
    """Values of the fused call's results: those of the calls it replaces, where each of them is there to be asked."""
    known = [node.meta["val"] for node in site.results if node is not None]
    if len(known) > 1 and len(known) == len(site.results):
        return known
    return site.spec.fake(*map(value_of, call_arguments(site)))


def copied(graph: fx.Graph) -> fx.Graph:
    """A copy whose node names are the original ones."""
    copy, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in graph.nodes:
        copies[node] = copy.node_copy(node, copies.__getitem__)
        copies[node].meta = dict(node.meta)
    return copy
