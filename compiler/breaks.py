"""Checks the ops of `--break`: each is declared, and a launch of the program that is lowered."""

from __future__ import annotations

from collections.abc import Iterable

from dsv41c.compiler.ops.catalog import OPS
from dsv41c.compiler.pass_driver import unknown_name
from dsv41c.compiler.program import Program, op_name

_OPTION = "option --break"


def check_declared(breaks: Iterable[str]) -> None:
    """E0901 with the nearest declared op for a name that is none: before the long work."""
    for name in breaks:
        if name not in OPS:
            raise unknown_name(_OPTION, name, sorted(OPS))


def check_used(breaks: Iterable[str], program: Program) -> None:
    """E0901 with the nearest op that the program calls for one that it does not: passes may have fused it."""
    used = {name for method in program.methods.values() for node in method.graph.nodes if (name := op_name(node))}
    for name in breaks:
        if name not in used:
            raise unknown_name(f"{_OPTION}: no launch of this plan", name, sorted(used))
