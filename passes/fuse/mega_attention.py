"""mega_attention: rotary, attention, commit of the window, inverse rotary and cast become one call."""

from __future__ import annotations

from dataclasses import dataclass

from dsv41c.passes.engine.fusion import Fusion


@dataclass(frozen=True)
class MegaAttention(Fusion):
    """One call for a layer's attention behind the query projection."""

    name = "mega_attention"
    commutes = True
    ops = ("mega_sparse_attention", "mega_window_attention", "mega_draft_attention")
    anchor = ("sparse_attention", "window_attention", "draft_attention")
