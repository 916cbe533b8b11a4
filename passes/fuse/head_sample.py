"""head_sample: the head's product and the greedy token become one call."""

from __future__ import annotations

from dataclasses import dataclass

from dsv41c.passes.engine.fusion import Fusion


@dataclass(frozen=True)
class HeadSample(Fusion):
    """One call for logits and tokens."""

    name = "head_sample"
    commutes = True
    ops = ("head_sample",)
    anchor = "greedy_token"
