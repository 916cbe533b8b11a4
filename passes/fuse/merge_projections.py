"""merge_projections: two products with FP8 weights that read one value become one call."""

from __future__ import annotations

from dataclasses import dataclass

from torch import fx

from dsv41c.compiler.program import argument, op_name
from dsv41c.passes.engine.fusion import Fusion
from dsv41c.passes.engine.guards import Site


@dataclass(frozen=True)
class MergeProjections(Fusion):
    """Two linears with scales and one input become one call."""

    name = "merge_projections"
    requires = ("mega_moe",)  # which takes w1 and w3 of the shared expert
    ops = ("linear_pair",)
    anchor = "linear"

    def stands_against(self, site: Site) -> str | None:
        """Exactly pairs: with a third reader it would be chance which two belong together."""
        x, taken = site.binding.variables["x"], site.taken
        assert isinstance(x, fx.Node)
        third = next((n for n in x.users if n not in taken and op_name(n) == "linear"
                      and argument(n, "x") is x and argument(n, "scale") is not None), None)
        return f"%{x.name} has a third such reader, %{third.name}" if third is not None else None
