"""mhc_norm: collapse and norm where no mix follows: the head, and the encoder's keys of the replay boundary.

A post before it stays a call of its own: its streams are what crosses the boundary or what the taps read, and the last
collapse works on the few rows that were taken, so that one kernel for both would have two row counts.
"""

from __future__ import annotations

from dataclasses import dataclass

from dsv41c.passes.engine.fusion import Fusion


@dataclass(frozen=True)
class MhcNorm(Fusion):
    """Collapse and norm without a mix, and the cast if nothing else reads the norm, become one call."""

    name = "mhc_norm"
    requires = ("mega_mhc", "open_mhc")  # what they leave has no mix
    ops = ("mhc_norm",)
    anchor = "mhc_collapse"
