"""The guards of a fusion: each says why a complete match must stay as it is, or nothing."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import fx

from dsv41c.compiler.ops.spec import OpSpec
from dsv41c.compiler.program import memory_root, op_name, written_arguments
from dsv41c.passes.engine.pattern import Pattern, Ref
from dsv41c.passes.engine.search import Binding, result_of, sources
from dsv41c.passes.engine.values import Evaluations, text_of


@dataclass(frozen=True)
class Site:
    """A complete match: the calls it takes, in graph order, and the nodes that carry the fused op's results."""

    spec: OpSpec
    pattern: Pattern
    binding: Binding
    nodes: tuple[fx.Node, ...]
    results: tuple[fx.Node | None, ...]
    position: Mapping[fx.Node, float]  # of every node of the graph
    at: fx.Node  # the fused call is put before this node
    evaluations: Evaluations

    @property
    def taken(self) -> frozenset[fx.Node]:
        """The calls, with the members of their results."""
        members = {u for n in self.nodes for u in n.users if u.target is operator.getitem}
        return frozenset(self.nodes) | members


def make_site(spec: OpSpec, pattern: Pattern, binding: Binding, position: Mapping[fx.Node, float],
              evaluations: Evaluations) -> Site:
    """The fused call goes before the first outside reader of a result, at the latest behind the last call it takes."""
    nodes = tuple(sorted(binding.steps.values(), key=position.__getitem__))
    results = tuple(result_of(binding.steps[r.step], r, pattern) if isinstance(r, Ref) else None
                    for r in pattern.results)
    site = Site(spec, pattern, binding, nodes, results, position, nodes[-1].next, evaluations)
    taken = site.taken
    readers = [u for r in results if r is not None for u in r.users if u not in taken]
    at = min([site.at, *readers], key=position.__getitem__)
    return replace(site, at=at)


def inner_value_escapes(site: Site) -> str | None:
    """A value between two fused calls must have no reader outside: it will not exist."""
    for ref in sorted(site.pattern.inner, key=lambda r: (r.step, r.output)):
        value = result_of(site.binding.steps[ref.step], ref, site.pattern)
        for reader in value.users if value is not None else ():
            if reader not in site.taken and reader.target is not operator.getitem:
                return f"%{value.name} inside is read by %{reader.name} outside"  # type: ignore[union-attr]
    return None


def source_comes_too_late(site: Site) -> str | None:
    """Everything the fused call reads must exist before the first outside reader of its results."""
    for source in sources(site.nodes):
        if site.position[source] >= site.position[site.at]:
            return f"%{source.name} is made behind %{site.at.name}, which reads a result"
    return None


def state_access_is_crossed(site: Site) -> str | None:
    """No call is moved across another one on the same memory, where one of the two writes."""
    there = site.position[site.at]
    for node in site.nodes:
        here = site.position[node]
        for other in _between(site, here, there):
            root = _conflict(node, other)
            if root is not None:
                return f"%{node.name} cannot pass %{other.name}: both use {root.meta.get('name', root.name)}"
    return None


def effects_are_reordered(site: Site) -> str | None:
    """Calls inside that touch one memory, where one of them writes, stand in the order of the composition."""
    for (_, first), (_, second) in itertools.combinations(sorted(site.binding.steps.items()), 2):
        root = _conflict(first, second)
        if root is not None and site.position[second] < site.position[first]:
            return f"%{second.name} comes before %{first.name}: both use {root.meta.get('name', root.name)}"
    return None


def shapes_differ(site: Site) -> str | None:
    """The fused op gives results of the shapes and dtypes that the calls gave; views are compared here."""
    given = [value_of(v) for v in call_arguments(site)]
    for declared, value in zip(site.spec.parsed().arguments, given, strict=True):
        if value is None and str(declared.type) == "Tensor":
            return f"the fused op takes no such arguments: {declared.name} is None"
    try:
        made = site.evaluations.texts(site.spec.fake, given)
    except Exception as error:
        return f"the fused op takes no such arguments: {str(error).splitlines()[0] if str(error) else error!r}"
    for number, (node, text) in enumerate(zip(site.results, made, strict=True)):
        if node is not None and text_of(node.meta["val"]) != text:
            return f"%{node.name} is {text_of(node.meta['val'])}, result {number} of {site.spec.name} is {text}"
    return None


def constraint_fails(site: Site) -> str | None:
    """The first constraint of the op's declaration that the arguments break."""
    given = [value_of(v) for v in call_arguments(site)]
    return next((reason for c in site.spec.constraints if (reason := c.check(*given)) is not None), None)


GUARDS = (inner_value_escapes, source_comes_too_late, state_access_is_crossed, effects_are_reordered, shapes_differ,
          constraint_fails)


def call_arguments(site: Site) -> list[Any]:
    """Arguments of the fused call in schema order."""
    values = {**site.binding.variables, **site.pattern.flags}
    return [values[a.name] for a in site.spec.parsed().arguments]


def value_of(argument: Any) -> Any:
    """The value that an argument stands for, of each node of a list."""
    return fx.node.map_arg(argument, lambda node: node.meta["val"])


def _between(site: Site, here: float, there: float) -> Iterator[fx.Node]:
    """The calls that a call passes on its way to the place before `site.at`: going up, that one is passed too."""
    taken = site.taken
    for other, place in site.position.items():
        is_passed = there <= place < here if there < here else here < place < there
        if is_passed and other not in taken and op_name(other) is not None:
            yield other


def _conflict(a: fx.Node, b: fx.Node) -> fx.Node | None:
    uses_a, writes_a = _accesses(a)
    uses_b, writes_b = _accesses(b)
    return next((r for r in uses_a if (r in writes_b) or (r in writes_a and r in uses_b)), None)


def _accesses(node: fx.Node) -> tuple[Sequence[fx.Node], set[fx.Node]]:
    return list(map(memory_root, node.all_input_nodes)), {memory_root(n) for n in written_arguments(node)}
