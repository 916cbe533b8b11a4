"""State writes of calls, fused ops counted by the writes of what they replace."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping

from torch import fx

from dsv41c.compiler.ops.catalog import OPS
from dsv41c.compiler.program import Program, argument, memory_root, op_name
from dsv41c.passes.engine.pattern import VIEW, Var, patterns_of

Write = tuple[str, str]  # method, state


def state_writes(program: Program) -> Counter[Write]:
    """How often each method writes each state tensor."""
    counts: Counter[Write] = Counter()
    for name, method in program.methods.items():
        for node in method.graph.nodes:
            for state, times in _writes_of_call(node).items():
                counts[name, state] += times
    return counts


def _writes_of_call(node: fx.Node) -> Mapping[str, int]:
    op = op_name(node)
    counts: Counter[str] = Counter()
    for name, times in _writes_of_op(op).items() if op in OPS else ():
        value = argument(node, name)
        if isinstance(value, fx.Node):
            counts[str(memory_root(value).meta.get("name", value.name))] += times
    return counts


@functools.cache
def _writes_of_op(op: str) -> Mapping[str, int]:
    """Argument name to the number of writes."""
    spec = OPS[op]
    if spec.composition is None:
        return dict.fromkeys(spec.mutates, 1)
    pattern = next(patterns_of(spec, OPS))
    counts: Counter[str] = Counter()
    for step in pattern.steps:
        if step.op == VIEW:
            continue
        for declared, operand in zip(OPS[step.op].parsed().arguments, step.operands, strict=True):
            if declared.name in OPS[step.op].mutates and isinstance(operand, Var):
                counts[operand.name] += 1
    return counts
