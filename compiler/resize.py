"""A program at other sizes: bounds of its symbols and shapes of its placeholders change, calls stay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import fx

from dsv41c.compiler.bounds import method_bounds
from dsv41c.compiler.checkpoint.view import CheckpointView
from dsv41c.compiler.model.state import StateSpec
from dsv41c.compiler.options import CompileOptions
from dsv41c.compiler.program import Method, Origin, Program
from dsv41c.compiler.weights import weight_recipes, weight_shapes

Placeholders = Mapping[Origin, Mapping[str, torch.Tensor]]  # shapes by origin and name


def resized(program: Program, view: CheckpointView, options: CompileOptions, specs: tuple[StateSpec, ...]) -> Program:
    """A copy with the bounds and the shapes of state and weights (tables by position) of other options."""
    bounds = method_bounds(options)
    placeholders = {Origin.STATE: {s.name: torch.empty(s.sizes, dtype=s.dtype, device="meta") for s in specs},
                    Origin.WEIGHT: weight_shapes(view, weight_recipes(view, options))}
    return Program({name: replace(m, symbol=replace(m.symbol, hi=bounds[name]), graph=_with_shapes(m, placeholders))
                    for name, m in program.methods.items()})


def _with_shapes(method: Method, placeholders: Placeholders) -> fx.Graph:
    graph, copied = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in method.graph.nodes:
        copy = copied[node] = graph.node_copy(node, copied.__getitem__)
        copy.meta = dict(node.meta)
        if node.meta.get("origin") in placeholders:
            copy.meta["val"] = placeholders[node.meta["origin"]][node.meta["name"]]
    return graph
