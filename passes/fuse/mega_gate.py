"""mega_gate: the gate's product and the routing become one call: the scores never leave the chip."""

from __future__ import annotations

from dataclasses import dataclass

from dsv41c.passes.engine.fusion import Fusion


@dataclass(frozen=True)
class MegaGate(Fusion):
    """The gate's linear and the routing that alone reads it become one call."""

    name = "mega_gate"
    ops = ("mega_gate",)
    anchor = "moe_route"
