"""engram_gather: the look-up of Engram rows and their cast become one call."""

from __future__ import annotations

from dataclasses import dataclass

from dsv41c.passes.engine.fusion import Fusion


@dataclass(frozen=True)
class EngramGather(Fusion):
    """One call for the table rows of an Engram layer."""

    name = "engram_gather"
    commutes = True
    ops = ("engram_gather",)
    anchor = "engram_lookup"
