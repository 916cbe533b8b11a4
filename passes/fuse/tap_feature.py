"""tap_feature: the mean of a tap's streams and its cast become one call."""

from __future__ import annotations

from dataclasses import dataclass

from dsv41c.passes.engine.fusion import Fusion


@dataclass(frozen=True)
class TapFeature(Fusion):
    """One call for each target layer of the draft."""

    name = "tap_feature"
    commutes = True
    ops = ("tap_feature",)
    anchor = "stream_mean"
