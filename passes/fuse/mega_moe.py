"""mega_moe: dispatch, routed experts, shared expert and their sum become one call.

The shared expert reads the rows that the routed ones read, so that both fill one grid.
"""

from __future__ import annotations

from dataclasses import dataclass

from dsv41c.passes.engine.fusion import Fusion


@dataclass(frozen=True)
class MegaMoe(Fusion):
    """Routed and shared experts with their exchange, if there is one, and their sum become one call."""

    name = "mega_moe"
    ops = ("mega_moe", "mega_moe_exchange")
    anchor = "moe_experts"
