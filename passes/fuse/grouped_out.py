"""grouped_out: the grouped output product and the cast of its result become one call."""

from __future__ import annotations

from dataclasses import dataclass

from dsv41c.passes.engine.fusion import Fusion


@dataclass(frozen=True)
class GroupedOut(Fusion):
    """grouped_linear and the cast that alone reads it become one call."""

    name = "grouped_out"
    commutes = True
    ops = ("grouped_out",)
    anchor = "grouped_linear"
