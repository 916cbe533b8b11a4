"""Fusion: a pass that replaces the composition of one declared op by a call of it, wherever the guards allow."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import fx

from dsv41c.compiler.ops.catalog import OPS
from dsv41c.compiler.ops.spec import OpSpec
from dsv41c.compiler.program import Program, op_name
from dsv41c.passes.base import GraphResult, Match, Note, Pass, PassResult, Refusal, Stage, per_method
from dsv41c.passes.engine.guards import GUARDS, Site, call_arguments, make_site
from dsv41c.passes.engine.pattern import Pattern, patterns_of
from dsv41c.passes.engine.search import Search


@dataclass(frozen=True)
class Fusion(Pass):
    """The op's composition is the pattern. `ops`: names of the fused ops, tried in this order at each site.

    `anchor`: the primitive at whose calls the patterns are tried; its calls that do not become part of a fused call
    are the refusals. It must occur in every pattern; the first of its steps is taken.
    """

    stage: ClassVar[Stage] = Stage.FUSE
    ops: ClassVar[tuple[str, ...]]
    anchor: ClassVar[str]

    def apply(self, program: Program) -> PassResult:
        return per_method(program, self._rewrite)

    def _rewrite(self, method: str, graph: fx.Graph) -> GraphResult:
        copy = copied(graph)
        sites = [n for n in copy.nodes if op_name(n) == self.anchor]
        notes: list[Note] = []
        for anchor in sites:
            if anchor.graph is copy and not anchor._erased:
                notes.append(self._fuse(method, copy, anchor))
        copy.lint()
        return GraphResult(copy, sum(isinstance(n, Match) for n in notes), tuple(notes))

    def _fuse(self, method: str, graph: fx.Graph, anchor: fx.Node) -> Note:
        reasons = []
        position = {node: place for place, node in enumerate([*graph.nodes, graph._root])}
        for name in self.ops:
            for pattern in patterns_of(OPS[name], OPS):
                site, reason = self._site(OPS[name], pattern, anchor, position)
                if site is not None:
                    return Match(method, anchor.name, *replace(graph, site))
                reasons.append(reason)
        return Refusal(method, anchor.name, max(reasons, key=lambda r: r[0])[1])

    def _site(self, spec: OpSpec, pattern: Pattern, anchor: fx.Node,
              position: Mapping[fx.Node, int]) -> tuple[Site, tuple[int, str]] | tuple[None, tuple[int, str]]:
        """The site, or how far the attempt came (guards come last) and what stood against it."""
        step = next(i for i, s in enumerate(pattern.steps) if s.op == self.anchor)
        search = Search(pattern)
        binding = search.around(anchor, step)
        if binding is None:
            return None, (search.depth, search.reason)
        site = make_site(spec, pattern, binding, position)
        for guard in GUARDS:
            reason = guard(site)
            if reason is not None:
                return None, (len(pattern.steps) + 1, reason)
        return site, (0, "")


def replace(graph: fx.Graph, site: Site) -> tuple[str, tuple[str, ...]]:
    """Put the fused call into the graph; returns its name and the names of the calls it replaces."""
    target = getattr(torch.ops.dsv41c, site.spec.name).default
    names = tuple(n.name for n in site.nodes)
    with graph.inserting_before(site.at):
        call = graph.create_node("call_function", target, tuple(call_arguments(site)), name=site.spec.name)
        metas = site.spec.fake(*[a.meta["val"] if isinstance(a, fx.Node) else a for a in call.args])
        call.meta["val"] = metas
        for number, old in enumerate(site.results):
            if old is None:
                continue
            new = call
            if isinstance(metas, tuple | list):
                new = graph.call_function(operator.getitem, (call, number))
                new.meta["val"] = metas[number]
            old.replace_all_uses_with(new)
    for node in sorted(site.taken, key=site.position.__getitem__, reverse=True):
        graph.erase_node(node)
    return call.name, names


def copied(graph: fx.Graph) -> fx.Graph:
    """A copy whose node names are the original ones."""
    copy, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in graph.nodes:
        copies[node] = copy.node_copy(node, copies.__getitem__)
        copies[node].meta = dict(node.meta)
    return copy
