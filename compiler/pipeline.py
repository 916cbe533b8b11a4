"""The ordered passes: the table of contents of what the compiler rewrites."""

from __future__ import annotations

from collections.abc import Iterable

from dsv41c.compiler.pass_driver import Observer, Piped, run_passes, select
from dsv41c.compiler.program import Program
from dsv41c.passes.base import Pass
from dsv41c.passes.canonicalize.merge_equal_calls import MergeEqualCalls

PIPELINE: tuple[Pass, ...] = (
    MergeEqualCalls(),
)


def run_pipeline(program: Program, without: Iterable[str] = (), observe: Observer | None = None) -> Piped:
    """Every pass but those named over every method, in order. E0901 for an unknown name."""
    left_out = tuple(without)
    return run_passes(program, select(PIPELINE, left_out), observe, left_out)
