"""mega_mhc"""

from __future__ import annotations

from dataclasses import dataclass

from dsv41c.passes.engine.fusion import Fusion


@dataclass(frozen=True)
class MegaMhc(Fusion):
    """One call for a site."""

    name = "mega_mhc"
    commutes = True
    ops = ("mhc_site",)
    anchor = "mhc_mix"
