"""Raising: a pass that replaces ATen calls which spell a declared op by a call of the op.

A spelling is a function of the op's arguments in plain torch. Traced on an example it is the pattern that is searched;
traced again on the arguments that were found it must give the very calls that stand in the program.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import fx

from dsv41c.compiler.ops.catalog import OPS
from dsv41c.compiler.program import Program
from dsv41c.passes.base import GraphResult, Match, Note, Pass, PassResult, Refusal, Stage, per_method
from dsv41c.passes.engine.fusion import copied
from dsv41c.passes.engine.guards import (
    Site,
    call_arguments,
    constraint_fails,
    make_site,
    shapes_differ,
    source_comes_too_late,
)
from dsv41c.passes.engine.pattern import Literal, Pattern, Ref
from dsv41c.passes.engine.raised_call import put_call, view_behind
from dsv41c.passes.engine.search import Binding, Search, call_name, operands_of, shown
from dsv41c.passes.engine.spelling import ROWS, Spelling, exact_steps, patterns
from dsv41c.passes.engine.values import Evaluations


@dataclass(frozen=True)
class _Around:
    """A call at which spellings are tried, and what is known of its graph."""

    anchor: fx.Node
    position: dict[fx.Node, float]
    evaluations: Evaluations


@dataclass(frozen=True)
class Raising(Pass):
    """`op`: the declared op. `shapes`: sizes of tensor arguments by letters, "..." for any; equal letters are equal
    sizes, which broadcasting would hide."""

    stage: ClassVar[Stage] = Stage.RAISE
    requires: ClassVar[tuple[str, ...]] = ("normalize_aten",)
    op: ClassVar[str]
    shapes: ClassVar[Mapping[str, str]] = {}
    regrouped: ClassVar[str | None] = None  # the argument whose last size the spelling leaves cut into groups
    spellings: ClassVar[tuple[Spelling, ...]]

    def apply(self, program: Program) -> PassResult:
        anchors = {s.anchor for s in self.spellings}
        if not any(call_name(n) in anchors for m in program.methods.values() for n in m.graph.nodes):
            return PassResult(program, 0)
        return per_method(program, self._rewrite)

    def solve(self, found: Mapping[str, Any], anchor: fx.Node) -> Mapping[str, Any]:
        """Arguments that no operand of the pattern shows, from those that were found."""
        return {}

    def chosen(self, anchor: fx.Node) -> tuple[Spelling, ...]:
        """The spellings to try at a call."""
        return tuple(s for s in self.spellings if s.anchor == call_name(anchor))

    def finish(self, graph: fx.Graph, call: fx.Node) -> None:
        """What is left to do around a new call."""

    def _rewrite(self, method: str, graph: fx.Graph) -> GraphResult:
        copy, evaluations = copied(graph), Evaluations()
        notes = [self._raise(method, copy, n, evaluations)
                 for n in list(copy.nodes) if not n._erased and self.chosen(n)]
        copy.lint()
        return GraphResult(copy, sum(isinstance(n, Match) for n in notes), tuple(notes))

    def _raise(self, method: str, graph: fx.Graph, anchor: fx.Node, evaluations: Evaluations) -> Note:
        position: dict[fx.Node, float] = {node: place for place, node in enumerate([*graph.nodes, graph._root])}
        around = _Around(anchor, position, evaluations)
        reasons = []
        for spelling in self.chosen(anchor):
            for pattern in patterns(self.op, spelling):
                for step in (i for i, s in enumerate(pattern.steps) if s.op == spelling.anchor):
                    site, reason = self._site(spelling, pattern, step, around)
                    if site is not None:
                        call, taken = put_call(graph, site)
                        self.finish(graph, call)
                        return Match(method, anchor.name, call.name, taken)
                    reasons.append(reason)
        return Refusal(method, anchor.name, max(reasons, key=lambda r: r[0])[1])

    def _site(self, spelling: Spelling, pattern: Pattern, step: int,
              around: _Around) -> tuple[Site | None, tuple[int, str]]:
        """The site, or how far the attempt came (guards come last) and what stood against it."""
        search, refused = Search(pattern), ""
        for binding in search.around(around.anchor, step):
            found = self._accepted(spelling, pattern, binding, around)
            if isinstance(found, Site):
                return found, (0, "")
            refused = refused or found
        return None, (len(pattern.steps) + 1, refused) if refused else (search.depth, search.reason)

    def _accepted(self, spelling: Spelling, pattern: Pattern, binding: Binding, around: _Around) -> Site | str:
        """The site of a complete binding, or the guard that stands against it."""
        if self.regrouped is not None:
            self._reshape(binding, pattern, around.position)
        given = {**binding.variables, **pattern.flags}
        binding.variables.update(self.solve(given, around.anchor))
        missing = [a.name for a in OPS[self.op].parsed().arguments if a.name not in {**given, **binding.variables}]
        if missing:
            return f"nothing tells {missing[0]}"
        site = make_site(OPS[self.op], pattern, binding, around.position, around.evaluations)
        guards = (self._shapes_do_not_fit, source_comes_too_late, constraint_fails,
                  *(() if self.regrouped else (shapes_differ,)))
        reason = next((r for guard in guards if (r := guard(site)) is not None), None)
        return reason or _calls_differ(spelling, site) or site

    def _reshape(self, binding: Binding, pattern: Pattern, position: dict[fx.Node, float]) -> None:
        assert self.regrouped is not None
        source, first = binding.variables[self.regrouped], pattern.results[0]
        assert isinstance(source, fx.Node) and isinstance(first, Ref)
        *rest, count, size = binding.steps[first.step].meta["val"].shape
        wanted, there = [*rest, count * size], source.meta["val"].shape
        if math.prod(map(_size, wanted)) != math.prod(map(_size, there)):
            return
        view = view_behind(source, wanted)
        position.setdefault(view, position[source] + 0.5)
        binding.variables[self.regrouped] = view

    def _shapes_do_not_fit(self, site: Site) -> str | None:
        sizes: dict[str, int] = {}
        for declared, value in zip(site.spec.parsed().arguments, call_arguments(site), strict=True):
            letters = self.shapes.get(declared.name, "...").split()
            if not isinstance(value, fx.Node) or letters == ["..."]:
                continue
            shape = [_size(s) for s in value.meta["val"].shape]
            if letters[0] == "...":
                letters, shape = letters[1:], shape[len(shape) - len(letters) + 1:]
            if len(letters) != len(shape) or any(sizes.setdefault(x, s) != s for x, s in zip(letters, shape,
                                                                                          strict=True)):
                return (f"{declared.name} of {site.spec.name} is {shown(value)} {shape}, not "
                        f"{self.shapes[declared.name]}")
        return None


def _calls_differ(spelling: Spelling, site: Site) -> str | None:
    """The spelling on the arguments that were found must be the calls that stand there, numbers and shapes included."""
    arguments = tuple(_example(a) for a in call_arguments(site))
    try:
        wanted = exact_steps(spelling, arguments)
    except Exception as error:
        return f"the spelling takes no such arguments: {(str(error) or repr(error)).splitlines()[0]}"
    if [s.op for s in wanted] != [s.op for s in site.pattern.steps]:
        return f"the spelling of {site.spec.name} is another list of calls for these arguments"
    for index, step in enumerate(wanted):
        node = site.binding.steps[index]
        for place, (operand, value) in enumerate(zip(step.operands, _concrete(node), strict=False)):
            if isinstance(operand, Literal) and not isinstance(value, fx.Node) and operand.value != value:
                return f"argument {place} of %{node.name} is {shown(value)}, not {operand.value!r}"
            if isinstance(operand, Ref) and operand != site.pattern.steps[index].operands[place]:
                return f"the spelling of {site.spec.name} has another %{node.name} for these arguments"
    return None


def _concrete(node: fx.Node) -> list[object]:
    return [-1 if isinstance(v, torch.SymInt) else v for v in operands_of(node)]


def _example(value: Any) -> Any:
    """A key of a meta tensor of the same shape at ROWS rows; everything else as it is."""
    if not isinstance(value, fx.Node):
        return value
    tensor = value.meta["val"]
    return tuple(_size(s) for s in tensor.shape), tensor.dtype


def _size(size: Any) -> int:
    if isinstance(size, int):
        return size
    expression = size.node.expr
    return int(expression.xreplace({s: ROWS for s in expression.free_symbols}))
