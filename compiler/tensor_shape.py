"""Arguments of a kernel: dtype and sizes of a tensor, sizes over the symbol `rows`, and lists of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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


def members(args: Sequence[Any]) -> list[Any]:
    """The arguments of a call with the members of its lists in their place: a launch binds each tensor by itself."""
    return [member for value in args for member in (value if isinstance(value, list | tuple) else (value,))]
