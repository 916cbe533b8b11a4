"""project_features: the product over the joined taps reads the taps where they lie."""

from __future__ import annotations

from dataclasses import dataclass

from dsv41c.passes.engine.fusion import Fusion


@dataclass(frozen=True)
class ProjectFeatures(Fusion):
    """One call without a copy of the taps."""

    name = "project_features"
    commutes = True
    ops = ("project_features",)
    anchor = "concat_columns"
