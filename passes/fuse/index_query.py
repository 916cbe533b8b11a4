"""index_query: rotary and cast of the index query beside the weights of its heads become one call."""

from __future__ import annotations

from dataclasses import dataclass

from dsv41c.passes.engine.fusion import Fusion


@dataclass(frozen=True)
class IndexQuery(Fusion):
    """One call in front of the scores of an index source layer."""

    name = "index_query"
    commutes = True
    ops = ("index_query",)
    anchor = "rotary"
