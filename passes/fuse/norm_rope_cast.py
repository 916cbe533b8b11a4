"""norm_rope_cast: norm, rotary and cast of the window key become one call; without quantizers, norm and rotary."""

from __future__ import annotations

from dataclasses import dataclass

from dsv41c.compiler.program import op_name
from dsv41c.passes.engine.fusion import Fusion
from dsv41c.passes.engine.guards import Site


@dataclass(frozen=True)
class NormRopeCast(Fusion):
    """rms_norm, rotary at each row's position and cast become one call."""

    name = "norm_rope_cast"
    commutes = True
    ops = ("norm_rope_cast",)
    anchor = "rotary"

    def stands_against(self, site: Site) -> str | None:
        """A key that goes to another cast is no window key: its norm and rotary belong to what makes index keys."""
        (key,) = site.results
        assert key is not None
        if site.pattern.flags["cast"]:
            return None
        other = next((n for n in key.users if str(op_name(n)).startswith("quantize_")), None)
        return f"%{key.name} is read by %{other.name}, another cast" if other is not None else None
