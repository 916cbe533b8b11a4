"""The guards of a fusion: each says why a complete match must stay as it is, or nothing."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from dsv41c.compiler.ops.spec import OpSpec
from dsv41c.compiler.program import memory_root, op_name, written_arguments
from dsv41c.passes.engine.pattern import Pattern, Ref
from dsv41c.passes.engine.search import Binding, result_of, sources


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

    @property
    def taken(self) -> frozenset[fx.Node]:
        """The calls, with the members of their results."""
        members = {u for n in self.nodes for u in n.users if u.target is operator.getitem}
        return frozenset(self.nodes) | members


def make_site(spec: OpSpec, pattern: Pattern, binding: Binding, position: Mapping[fx.Node, float]) -> Site:
    """The fused call goes before the first outside reader of a result, at the latest behind the last call it takes."""
    nodes = tuple(sorted(binding.steps.values(), key=position.__getitem__))
    results = tuple(result_of(binding.steps[r.step], r, pattern) if isinstance(r, Ref) else None
                    for r in pattern.results)
    site = Site(spec, pattern, binding, nodes, results, position, nodes[-1].next)
    taken = site.taken
    readers = [u for r in results if r is not None for u in r.users if u not in taken]
    at = min([site.at, *readers], key=position.__getitem__)
    return Site(spec, pattern, binding, nodes, results, position, at)


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


def shapes_differ(site: Site) -> str | None:
    """The fused op gives results of the shapes and dtypes that the calls gave; views are compared here."""
    given = [_value(v) for v in call_arguments(site)]
    try:
        made = site.spec.fake(*given)
    except Exception as error:
        return f"the fused op takes no such arguments: {str(error).splitlines()[0] if str(error) else error!r}"
    expected = () if made is None else tuple(made) if isinstance(made, tuple | list) else (made,)
    for number, (node, value) in enumerate(zip(site.results, expected, strict=True)):
        if node is None:
            continue
        if _text(node.meta["val"]) != _text(value):  # as text: comparing symbols would specialise them
            return f"%{node.name} is {_text(node.meta['val'])}, result {number} of {site.spec.name} is {_text(value)}"
    return None


def constraint_fails(site: Site) -> str | None:
    """The first constraint of the op's declaration that the arguments break."""
    given = [_value(v) for v in call_arguments(site)]
    return next((reason for c in site.spec.constraints if (reason := c.check(*given)) is not None), None)


GUARDS = (inner_value_escapes, source_comes_too_late, state_access_is_crossed, shapes_differ, constraint_fails)


def call_arguments(site: Site) -> list[Any]:
    """Arguments of the fused call in schema order."""
    values = {**site.binding.variables, **site.pattern.flags}
    return [values[a.name] for a in site.spec.parsed().arguments]


def _value(argument: object) -> object:
    return argument.meta["val"] if isinstance(argument, fx.Node) else argument


def _between(site: Site, here: float, there: float) -> Iterator[fx.Node]:
    low, high = min(here, there), max(here, there)
    for other, place in site.position.items():
        if low < place < high and other not in site.taken and op_name(other) is not None:
            yield other


def _conflict(a: fx.Node, b: fx.Node) -> fx.Node | None:
    uses_a, writes_a = _accesses(a)
    uses_b, writes_b = _accesses(b)
    return next((r for r in uses_a if (r in writes_b) or (r in writes_a and r in uses_b)), None)


def _accesses(node: fx.Node) -> tuple[Sequence[fx.Node], set[fx.Node]]:
    return list(map(memory_root, node.all_input_nodes)), {memory_root(n) for n in written_arguments(node)}


def _text(value: torch.Tensor) -> str:
    return f"{str(value.dtype).removeprefix('torch.')} {[str(s) for s in value.shape]}".replace("'", "")
