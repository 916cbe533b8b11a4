"""Names the value and the match of a pass at which two programs, one made from the other, begin to differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import fx

from dsv41c.compiler.bits import digest
from dsv41c.compiler.interpret import ProgramModel, Seen
from dsv41c.compiler.program import Method, Program, memory_root, written_arguments
from dsv41c.passes.base import Match

Inputs = tuple[np.ndarray, np.ndarray, np.ndarray]  # upload, keep_rows, logit_rows
MakeModel = Callable[[Program, Seen | None], ProgramModel]  # with fresh state
_Place = tuple[str, str]  # method, node


@dataclass(frozen=True)
class Site:
    """`node` is the first value that both programs have and that differs; `match` the rewrite it comes from, None when
    no single one can be told."""

    method: str
    node: str
    match: Match | None


def first_site(before: Program, after: Program, matches: Sequence[Match],
               make_model: MakeModel, inputs: Sequence[Inputs]) -> Site | None:
    """Both programs run all steps; values of the last one are compared. None when no value of both differs."""
    needed, found = _recorded(before, make_model, inputs), _recorded(after, make_model, inputs)
    for place, value in found.items():
        if place in needed and needed[place] != value:
            method = after.methods[place[0]]
            node = next(n for n in method.graph.nodes if n.name == place[1])
            return Site(*place, _nearest(method, node, matches))
    return None


def _recorded(program: Program, make_model: MakeModel,
              inputs: Sequence[Inputs]) -> Mapping[_Place, bytes]:
    """Digests of all values of the last step, in the order in which they were made; of a call without results, the
    state that it writes."""
    values: dict[_Place, bytes] = {}
    is_last = False

    def seen(method: Method, node: fx.Node, value: Any) -> None:
        if not is_last or node.op == "placeholder":
            return
        if value is None:
            value = [model.state[root.meta["name"]] for root in map(memory_root, written_arguments(node))
                     if root.meta.get("name") in model.state]
        values[method.name, node.name] = digest(value)

    model = make_model(program, seen)
    for number, given in enumerate(inputs):
        is_last = number == len(inputs) - 1
        model.step(*given)
    return values


def _nearest(method: Method, node: fx.Node, matches: Sequence[Match]) -> Match | None:
    """The last rewrite before `node` that it depends on, through values or through state."""
    made = {match.made: match for match in matches if match.method == method.name}
    order = list(method.graph.nodes)
    place = order.index(node)
    writers: dict[fx.Node, list[fx.Node]] = {}
    for other in order[:place]:
        for root in map(memory_root, written_arguments(other)):
            writers.setdefault(root, []).append(other)
    reached, pending = set[fx.Node](), [node]
    while pending:
        one = pending.pop()
        if one not in reached:
            reached.add(one)
            pending += [*one.all_input_nodes, *writers.get(one, ())]
    return next((made[n.name] for n in reversed(order[: place + 1]) if n in reached and n.name in made), None)
