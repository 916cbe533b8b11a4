"""Float64 weights of a checkpoint, handed out as plain arrays and as callable linears."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .quantizers import keep, quantize_fp4_index, quantize_fp4_kv, quantize_fp8
from .reader import CheckpointReader

Quantizer = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Quantizers:
    """The three fake quantizers of a model: FP8 linear inputs and window keys, index q/k, compressed KV."""

    fp8: Quantizer
    fp4_index: Quantizer
    fp4_kv: Quantizer


QUANTIZERS = {
    "off": Quantizers(keep, keep, keep),
    "fake": Quantizers(quantize_fp8, quantize_fp4_index, quantize_fp4_kv),
}


@dataclass(frozen=True)
class Linear:
    """y = quantize(x) @ weight.T for weight [out, in]; BF16 weights take their input unquantised."""

    weight: np.ndarray
    quantize: Quantizer

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """x [..., in] -> [..., out]."""
        return self.quantize(x) @ self.weight.T


class Weights:
    """The tensors under one name prefix."""

    def __init__(self, reader: CheckpointReader, quantizers: Quantizers, prefix: str = "") -> None:
        self.reader = reader
        self.quantizers = quantizers
        self._prefix = prefix

    def under(self, prefix: str) -> Weights:
        """The tensors below `prefix` of this one."""
        return Weights(self.reader, self.quantizers, f"{self._prefix}{prefix}.")

    def has(self, name: str) -> bool:
        """Whether a tensor of that name exists."""
        return self._prefix + name in self.reader

    def array(self, name: str) -> np.ndarray:
        """An unscaled tensor in float64."""
        return self.reader.plain(self._prefix + name)

    def matrix(self, name: str) -> np.ndarray:
        """A block-scaled (FP8 or FP4) matrix in float64 [out, in]."""
        return self.reader.scaled(self._prefix + name)

    def linear(self, name: str) -> Linear:
        """`name`.weight as a linear; one that has a scale is FP8 and quantises its input."""
        if self.has(f"{name}.scale"):
            return Linear(self.matrix(name), self.quantizers.fp8)
        return Linear(self.array(f"{name}.weight"), keep)

    def table_rows(self, name: str, rows: np.ndarray) -> np.ndarray:
        """Rows of an FP8 table with per-row scales: rows [...] -> [..., width]."""
        return self.reader.scaled_rows(self._prefix + name, rows)
