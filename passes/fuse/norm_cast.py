"""norm_cast: a norm that only a cast reads becomes one call with it: the query latent, the draft's target norm."""

from __future__ import annotations

from dataclasses import dataclass

from dsv41c.passes.engine.fusion import Fusion


@dataclass(frozen=True)
class NormCast(Fusion):
    """rms_norm and the cast that alone reads it become one call."""

    name = "norm_cast"
    requires = ("mhc_norm",)  # or it would take the norm and the cast behind a collapse
    commutes = True
    ops = ("norm_cast",)
    anchor = "rms_norm"
