"""The ordered passes: the table of contents of what the compiler rewrites."""

from __future__ import annotations

from dataclasses import replace

from dsv41c.compiler.program import Program
from dsv41c.passes.base import Pass
from dsv41c.passes.canonicalize.merge_equal_calls import MergeEqualCalls

PIPELINE: tuple[Pass, ...] = (MergeEqualCalls(),)


def run_pipeline(program: Program) -> Program:
    """Every pass over every method, in order."""
    methods = dict(program.methods)
    for step in PIPELINE:
        for name, method in methods.items():
            methods[name] = replace(method, graph=step.apply(method.graph).graph)
    return Program(methods)
