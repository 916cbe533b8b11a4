"""What a lowered plan needs, in the terms of the budget solver; and the check of a plan against a budget."""

from __future__ import annotations

from collections.abc import Mapping

from dsv41c.graphs.budget import Candidate, MethodNeed, over_budget
from dsv41c.graphs.cost import DEFAULT_COST, CostModel
from dsv41c.runtime.plan.memory_classes import graph_bytes, memory_by_class
from dsv41c.runtime.plan.schema import Plan


def candidate_of(plan: Plan, costs: Mapping[str, CostModel] | None = None) -> Candidate:
    """`costs` by method; one that is missing has the default."""
    bounds = {symbol.name: symbol.hi for symbol in plan.symbols}
    classes = {name: size for name, size in memory_by_class(plan).items() if name != "graphs"}
    return Candidate(classes, tuple(
        MethodNeed(m.name, bounds[m.symbol], m.buckets, graph_bytes(plan, m), (costs or {}).get(m.name, DEFAULT_COST))
        for m in plan.methods))


def check_plan(plan: Plan, budget: int) -> None:
    """E0405 when the plan with all its buckets takes more than `budget` bytes beside the weights."""
    total = sum(memory_by_class(plan).values())
    if total > budget:
        options = plan.provenance.options
        raise over_budget(candidate_of(plan), total, budget, " ".join(
            f"--{name.replace('_', '-')} {options[name]}" for name in ("max_model_len", "max_num_batched_tokens")
            if name in options))
