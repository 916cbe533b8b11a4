"""TensorShape: dtype and sizes of a tensor argument of a kernel, sizes over the symbol `rows`."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dsv41c.runtime.plan.expr import Expr, evaluate
from dsv41c.runtime.plan.format import ROWS


@dataclass(frozen=True)
class TensorShape:
    dtype: torch.dtype
    sizes: tuple[Expr, ...]

    def meta(self, rows: int) -> torch.Tensor:
        """A meta tensor of this shape at so many rows."""
        return torch.empty([evaluate(size, {ROWS: rows}) for size in self.sizes], dtype=self.dtype, device="meta")
