"""The ordered passes: the table of contents of what the compiler rewrites."""

from __future__ import annotations

from collections.abc import Iterable

from dsv41c.compiler.pass_driver import Observer, Piped, run_passes, select
from dsv41c.compiler.program import Program
from dsv41c.passes.base import Pass
from dsv41c.passes.canonicalize.merge_equal_calls import MergeEqualCalls
from dsv41c.passes.fuse.compress_store import CompressStore
from dsv41c.passes.fuse.engram_gather import EngramGather
from dsv41c.passes.fuse.feature_commit import FeatureCommit
from dsv41c.passes.fuse.head_sample import HeadSample
from dsv41c.passes.fuse.index_query import IndexQuery
from dsv41c.passes.fuse.markov_step import MarkovStep
from dsv41c.passes.fuse.project_features import ProjectFeatures
from dsv41c.passes.fuse.tap_feature import TapFeature

PIPELINE: tuple[Pass, ...] = (
    MergeEqualCalls(),
    # Norms, rotaries and products that other fusions would take for themselves belong to these first.
    CompressStore(),
    IndexQuery(),
    EngramGather(),
    HeadSample(),
    TapFeature(),
    ProjectFeatures(),
    FeatureCommit(),
    MarkovStep(),
)


def run_pipeline(program: Program, without: Iterable[str] = (), observe: Observer | None = None) -> Piped:
    """Every pass but those named over every method, in order. E0901 for an unknown name."""
    left_out = tuple(without)
    return run_passes(program, select(PIPELINE, left_out), observe, left_out)
