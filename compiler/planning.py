"""Plans of one checkpoint at many sizes: captured and rewritten once, lowered anew for each context and row bound."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import fx

from dsv41c.compiler.driver import Fused, lower_fused
from dsv41c.compiler.methods import method_bounds
from dsv41c.compiler.model.state import StateSpec, state_specs
from dsv41c.compiler.options import CompileOptions
from dsv41c.compiler.program import Method, Origin, Program
from dsv41c.compiler.weights import weight_recipes, weight_shapes
from dsv41c.graphs.budget import Candidate, Space
from dsv41c.graphs.memory import aligned
from dsv41c.graphs.plan_need import candidate_of
from dsv41c.runtime.plan.schema import Plan

Placeholders = Mapping[Origin, Mapping[str, torch.Tensor]]  # shapes by origin and name


@dataclass
class Planner:
    """`plan(tier, rows)` is what compiling with these two options would plan: these enter a program
    as shapes of its placeholders and bounds of its symbols only, so that no pass has to run again."""

    fused: Fused
    _plans: dict[tuple[int, int], Plan] = field(default_factory=dict)

    def options(self, max_model_len: int, max_rows: int) -> CompileOptions:
        """E0901 where the model does not allow them."""
        return replace(self.fused.options, max_model_len=max_model_len,
                       max_num_batched_tokens=max_rows).resolved(self.fused.view.config)

    def plan(self, max_model_len: int, max_rows: int) -> Plan:
        key = (max_model_len, max_rows)
        if key not in self._plans:
            options = self.options(*key)
            program = resized(self.fused.program, options, self._placeholders(options))
            self._plans[key] = lower_fused(self.fused, program, options)[0]
        return self._plans[key]

    def candidate(self, max_model_len: int, max_rows: int) -> Candidate:
        return candidate_of(self.plan(max_model_len, max_rows))

    def state_bytes(self, max_model_len: int) -> int:
        """Known without a plan; no plan of this context takes less."""
        specs = self._specs(self.options(max_model_len, self.fused.options.max_num_batched_tokens))
        return sum(aligned(math.prod(s.sizes) * s.dtype.itemsize) for s in specs)

    def space(self, tiers: tuple[int, ...], row_bounds: tuple[int, ...]) -> Space:
        return Space(tiers, row_bounds, self.candidate, self.state_bytes)

    def _placeholders(self, options: CompileOptions) -> Placeholders:
        view = self.fused.view
        states = {s.name: torch.empty(s.sizes, dtype=s.dtype, device="meta") for s in self._specs(options)}
        return {Origin.STATE: states, Origin.WEIGHT: weight_shapes(view, weight_recipes(view, options))}

    def _specs(self, options: CompileOptions) -> tuple[StateSpec, ...]:
        return state_specs(self.fused.view.config, options, backtrack=0, draft=False)


def resized(program: Program, options: CompileOptions, placeholders: Placeholders) -> Program:
    """A copy with the bounds and the shapes of state and weights (tables by position) of other options."""
    bounds = method_bounds(options)
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
