"""Shapes and dtypes of the values of a method: fake tensors over one symbol for its rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._dynamo.source import ConstantSource
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

_EXAMPLE_ROWS = 8191  # a prime that no other size is: a size that only fits it is a mistake


class RowSymbol:
    """One symbol; sizes are multiples of it plus a number. Every tensor of a method comes from here or from an op."""

    def __init__(self, name: str) -> None:
        self._shapes = ShapeEnv()
        self._mode = FakeTensorMode(shape_env=self._shapes)
        source = ConstantSource(name)
        self._symbol = self._shapes.create_symbol(_EXAMPLE_ROWS, source, dynamic_dim=DimDynamic.DYNAMIC)
        self._rows = self._shapes.create_symintnode(self._symbol, hint=_EXAMPLE_ROWS, source=source)

    def size(self, slope: int, base: int) -> Any:
        return slope * self._rows + base if slope else base

    def tensor(self, dtype: torch.dtype, sizes: Sequence[Any]) -> torch.Tensor:
        with self._mode:
            return torch.empty(tuple(sizes), dtype=dtype, device="meta")

    @property
    def is_free(self) -> bool:
        """False once an op has asked for one certain number of rows."""
        return self._symbol not in self._shapes.replacements
