"""open_mhc: the beginning of a site whose streams no mhc_post made.

These are layer 0, the attention site of an Engram layer (Engram and the draft taps sit between post and collapse), and
the decoder's first site, whose rows were taken at the replay boundary.
"""

from __future__ import annotations

from dataclasses import dataclass

from dsv41c.passes.engine.fusion import Fusion


@dataclass(frozen=True)
class OpenMhc(Fusion):
    """Collapse, norm and cast beside the mix of streams that another call made become one call."""

    name = "open_mhc"
    requires = ("mega_mhc",)  # or it would take the sites that have a post
    ops = ("mhc_open",)
    anchor = "mhc_mix"
