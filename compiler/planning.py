"""Plans of one checkpoint at many sizes: captured and rewritten once, lowered anew for each context and row bound."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from dsv41c.compiler.cuda_bodies import UnbuiltBodies
from dsv41c.compiler.driver import Fused, lower_fused
from dsv41c.compiler.model.state import StateSpec, state_specs
from dsv41c.compiler.options import CompileOptions
from dsv41c.compiler.resize import resized
from dsv41c.graphs.budget import Candidate, Space
from dsv41c.graphs.memory import aligned
from dsv41c.graphs.plan_need import candidate_of
from dsv41c.graphs.workload import Histogram, default_histogram
from dsv41c.runtime.plan.schema import Plan


@dataclass
class Planner:
    """`plan(tier, rows)` is what compiling with these two options would plan: these enter a program
    as shapes of its placeholders and bounds of its symbols only, so that no pass has to run again. On a CUDA target it
    has the memory and the number of nodes, and no kernel is compiled."""

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
            program = resized(self.fused.program, self.fused.view, options, self._specs(options))
            target, fallback = options.target, frozenset(options.fallback)
            cuda = None if target == "cpu" else UnbuiltBodies(
                target, None, fallback, options.batch_invariant == "on")
            self._plans[key] = lower_fused(self.fused, program, options, cuda)
        return self._plans[key]

    def candidate(self, max_model_len: int, max_rows: int) -> Candidate:
        return candidate_of(self.plan(max_model_len, max_rows))

    def state_bytes(self, max_model_len: int) -> int:
        """Known without a plan; no plan of this context takes less."""
        specs = self._specs(self.options(max_model_len, self.fused.options.max_num_batched_tokens))
        return sum(aligned(math.prod(s.sizes) * s.dtype.itemsize) for s in specs)

    def space(self, tiers: tuple[int, ...], row_bounds: tuple[int, ...]) -> Space:
        return Space(tiers, row_bounds, self.candidate, self.state_bytes)

    def default_workload(self) -> Histogram:
        """Of a compact decoder the kept rows of each prompt."""
        options = self.fused.options
        return default_histogram(options.suffix_keep_tokens if options.suffix_mode == "compact" else None)

    def _specs(self, options: CompileOptions) -> tuple[StateSpec, ...]:
        return state_specs(self.fused.view.config, options)
