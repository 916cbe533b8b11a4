"""What a lowered plan needs, in the terms of the budget solver; and the check of a plan against a budget."""

from __future__ import annotations

from dsv41c.graphs.budget import Candidate, MethodNeed, over_budget
from dsv41c.runtime.plan.costs import costs_of
from dsv41c.runtime.plan.memory_classes import graph_bytes, memory_by_class
from dsv41c.runtime.plan.schema import Plan


def candidate_of(plan: Plan) -> Candidate:
    """With the costs of the plan's own ladders."""
    bounds = {symbol.name: symbol.hi for symbol in plan.symbols}
    classes = {name: size for name, size in memory_by_class(plan).items() if name != "graphs"}
    return Candidate(classes, tuple(
        MethodNeed(m.name, bounds[m.symbol], m.buckets, graph_bytes(plan, m), costs_of(m.ladder), m.ladder.above)
        for m in plan.methods))


def check_plan(plan: Plan, budget: int) -> None:
    """E0405 when the plan with all its buckets takes more than `budget` bytes beside the weights."""
    total = sum(memory_by_class(plan).values())
    if total > budget:
        options = plan.provenance.options
        raise over_budget(candidate_of(plan), total, budget, " ".join(
            f"--{name.replace('_', '-')} {options[name]}" for name in ("max_model_len", "max_num_batched_tokens")
            if name in options))
