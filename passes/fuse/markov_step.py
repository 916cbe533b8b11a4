"""markov_step: a position of the draft chain becomes one call."""

from __future__ import annotations

from dataclasses import dataclass

from dsv41c.passes.engine.fusion import Fusion


@dataclass(frozen=True)
class MarkovStep(Fusion):
    """One call for the token of a draft position and its confidence."""

    name = "markov_step"
    commutes = True
    ops = ("markov_step",)
    anchor = "greedy_draft"
