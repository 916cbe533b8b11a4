"""feature_commit: product, norm, rotary, cast and commit of a draft layer's keys become one call."""

from __future__ import annotations

from dataclasses import dataclass

from dsv41c.passes.engine.fusion import Fusion


@dataclass(frozen=True)
class FeatureCommit(Fusion):
    """One call for each draft layer's window."""

    name = "feature_commit"
    commutes = True
    ops = ("feature_commit",)
    anchor = "window_commit"
