"""StepRows: what every block of one step shares: the row table, the state and the rotary tables."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dsv41c.compiler.model.scope import Scope


@dataclass(frozen=True)
class StepRows:
    """rows: int32 `[T, 8]`; `constants` are compiler-made weights (rotary tables, Engram hash numbers)."""

    rows: torch.Tensor
    state: Scope
    constants: Scope

    def rotary_table(self, compressed: bool) -> torch.Tensor:
        """float32 `[positions, rope/2, 2]` of (cos, sin)."""
        return self.constants("rotary_compressed" if compressed else "rotary_plain")
