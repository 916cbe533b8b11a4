"""The ordered passes: the table of contents of what the compiler rewrites."""

from __future__ import annotations

from collections.abc import Iterable

from dsv41c.compiler.pass_driver import Observer, Piped, run_passes, select
from dsv41c.compiler.program import Program
from dsv41c.passes.base import Pass
from dsv41c.passes.canonicalize.drop_dead_calls import DropDeadCalls
from dsv41c.passes.canonicalize.drop_no_op_views import DropNoOpViews
from dsv41c.passes.canonicalize.merge_equal_calls import MergeEqualCalls
from dsv41c.passes.canonicalize.normalize_arguments import NormalizeArguments
from dsv41c.passes.raise_ops.embed_expand import RaiseEmbedExpand
from dsv41c.passes.raise_ops.hyper_connection import RaiseMhcCollapse, RaiseMhcMix, RaiseMhcPost, RaiseStreamMean
from dsv41c.passes.raise_ops.linear import RaiseGroupedLinear, RaiseLinear
from dsv41c.passes.raise_ops.moe import RaiseCombineExperts, RaiseMoeGate, RaiseSwiglu
from dsv41c.passes.raise_ops.normalize_aten import NormalizeAten
from dsv41c.passes.raise_ops.quantize import RaiseQuantizeFp4Index, RaiseQuantizeFp4Kv, RaiseQuantizeFp8
from dsv41c.passes.raise_ops.rms_norm import RaiseRmsNorm
from dsv41c.passes.raise_ops.rotary import RaiseRotary

PIPELINE: tuple[Pass, ...] = (
    NormalizeAten(),
    RaiseMhcMix(),
    RaiseMoeGate(),
    RaiseMhcPost(),
    RaiseMhcCollapse(),
    RaiseRmsNorm(),
    RaiseQuantizeFp8(),
    RaiseQuantizeFp4Index(),
    RaiseQuantizeFp4Kv(),
    RaiseRotary(),
    RaiseEmbedExpand(),
    RaiseLinear(),
    RaiseGroupedLinear(),
    RaiseSwiglu(),
    RaiseStreamMean(),
    RaiseCombineExperts(),
    NormalizeArguments(),
    DropNoOpViews(),
    MergeEqualCalls(),
    DropDeadCalls(),
)


def run_pipeline(program: Program, without: Iterable[str] = (), observe: Observer | None = None) -> Piped:
    """Every pass but those named over every method, in order. E0901 for an unknown name."""
    left_out = tuple(without)
    return run_passes(program, select(PIPELINE, left_out), observe, left_out)
