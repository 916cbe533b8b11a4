"""The order of the passes that raise plain torch to declared ops."""

from __future__ import annotations

from dsv41c.passes.base import Pass
from dsv41c.passes.raise_ops.embed_expand import RaiseEmbedExpand
from dsv41c.passes.raise_ops.hyper_connection import RaiseMhcCollapse, RaiseMhcMix, RaiseMhcPost, RaiseStreamMean
from dsv41c.passes.raise_ops.linear import RaiseGroupedLinear, RaiseLinear
from dsv41c.passes.raise_ops.moe import RaiseCombineExperts, RaiseMoeRoute, RaiseSwiglu
from dsv41c.passes.raise_ops.normalize_aten import NormalizeAten
from dsv41c.passes.raise_ops.quantize import RaiseQuantizeFp4Index, RaiseQuantizeFp4Kv, RaiseQuantizeFp8
from dsv41c.passes.raise_ops.rms_norm import RaiseRmsNorm
from dsv41c.passes.raise_ops.rotary import RaiseRotary

RAISE: tuple[Pass, ...] = (
    NormalizeAten(),
    RaiseMhcMix(),
    RaiseMoeRoute(),
    RaiseMhcPost(),
    RaiseMhcCollapse(),
    RaiseRmsNorm(),
    RaiseQuantizeFp8(),
    RaiseQuantizeFp4Index(),
    RaiseQuantizeFp4Kv(),
    RaiseRotary(),
    RaiseEmbedExpand(),
    RaiseLinear(),
    RaiseGroupedLinear(),
    RaiseSwiglu(),
    RaiseStreamMean(),
    RaiseCombineExperts(),
)
