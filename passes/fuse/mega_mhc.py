"""mega_mhc: the end of one mHC site and the beginning of the next become one call."""

from __future__ import annotations

from dataclasses import dataclass

from dsv41c.passes.engine.fusion import Fusion


@dataclass(frozen=True)
class MegaMhc(Fusion):
    """mhc_post, collapse, norm and cast beside the mix of the same streams become one call."""

    name = "mega_mhc"
    ops = ("mhc_site",)
    anchor = "mhc_mix"
