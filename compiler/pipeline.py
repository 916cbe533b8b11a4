"""The ordered passes: the table of contents of what the compiler rewrites."""

from __future__ import annotations

from collections.abc import Iterable

from dsv41c.compiler.pass_driver import Observer, Piped, run_passes, select
from dsv41c.compiler.program import Program
from dsv41c.compiler.raise_pipeline import RAISE
from dsv41c.passes.base import Pass
from dsv41c.passes.canonicalize.drop_dead_calls import DropDeadCalls
from dsv41c.passes.canonicalize.drop_local_collectives import DropLocalCollectives
from dsv41c.passes.canonicalize.drop_no_op_views import DropNoOpViews
from dsv41c.passes.canonicalize.merge_equal_calls import MergeEqualCalls
from dsv41c.passes.canonicalize.normalize_arguments import NormalizeArguments
from dsv41c.passes.fuse.compress_store import CompressStore
from dsv41c.passes.fuse.engram_gather import EngramGather
from dsv41c.passes.fuse.feature_commit import FeatureCommit
from dsv41c.passes.fuse.grouped_out import GroupedOut
from dsv41c.passes.fuse.head_sample import HeadSample
from dsv41c.passes.fuse.index_query import IndexQuery
from dsv41c.passes.fuse.markov_step import MarkovStep
from dsv41c.passes.fuse.mega_attention import MegaAttention
from dsv41c.passes.fuse.mega_gate import MegaGate
from dsv41c.passes.fuse.mega_mhc import MegaMhc
from dsv41c.passes.fuse.mega_moe import MegaMoe
from dsv41c.passes.fuse.merge_projections import MergeProjections
from dsv41c.passes.fuse.mhc_norm import MhcNorm
from dsv41c.passes.fuse.norm_cast import NormCast
from dsv41c.passes.fuse.norm_rope_cast import NormRopeCast
from dsv41c.passes.fuse.open_mhc import OpenMhc
from dsv41c.passes.fuse.project_features import ProjectFeatures
from dsv41c.passes.fuse.tap_feature import TapFeature

PIPELINE: tuple[Pass, ...] = (
    *RAISE,
    NormalizeArguments(),
    DropNoOpViews(),
    MergeEqualCalls(),
    DropLocalCollectives(),  # before the fusions: a local copy would be fused with them
    DropDeadCalls(),
    MegaMhc(),  # first of the three: it wants a post
    OpenMhc(),  # behind mega_mhc: the sites without a post
    MhcNorm(),  # behind both: what has no mix
    MegaGate(),
    MegaMoe(),  # before merge_projections, which would take the shared expert's w1 and w3
    MergeProjections(),
    CompressStore(),
    IndexQuery(),
    EngramGather(),
    TapFeature(),
    ProjectFeatures(),
    FeatureCommit(),
    MarkovStep(),
    HeadSample(),
    NormCast(),  # behind the mhc passes, whose norms it would take
    NormRopeCast(),  # behind compress_store and feature_commit, whose keys it would take without casts
    MegaAttention(),
    GroupedOut(),
)


def run_pipeline(program: Program, without: Iterable[str] = (), observe: Observer | None = None) -> Piped:
    """Every pass but those named over every method, in order. E0901 for an unknown name."""
    left_out = tuple(without)
    return run_passes(program, select(PIPELINE, left_out), observe, left_out)
