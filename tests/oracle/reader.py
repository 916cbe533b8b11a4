"""Read a safetensors checkpoint directory byte by byte and dequantise its tensors to float64.

File layout: 8 bytes little-endian header length, a JSON header, then the data. Nothing of the product and no
third-party reader is used here, so that a mistake in either cannot hide itself.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

INDEX_NAME = "model.safetensors.index.json"
RAW_TYPES = {"BF16": "<u2", "F32": "<f4", "F8_E4M3": "u1", "F8_E8M0": "u1", "I8": "u1"}


def _e4m3_values() -> np.ndarray:
    """All 256 values of e4m3fn: sign, 4 exponent bits (bias 7), 3 mantissa bits, S.1111.111 is NaN."""
    codes = np.arange(256)
    exponent, mantissa = (codes >> 3) & 15, codes & 7
    magnitude = np.where(exponent == 0, np.ldexp(mantissa / 8, -6), np.ldexp(1 + mantissa / 8, exponent - 7))
    magnitude[(codes & 127) == 127] = np.nan
    return np.where(codes & 128, -magnitude, magnitude)


def _e8m0_values() -> np.ndarray:
    """All 256 values of e8m0: a bare exponent with bias 127, 255 is NaN."""
    values = np.ldexp(1.0, np.arange(256) - 127)
    values[255] = np.nan
    return values


E4M3 = _e4m3_values()
E8M0 = _e8m0_values()
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


@dataclass(frozen=True)
class StoredTensor:
    """One tensor as it lies in its file; `raw` is an integer (or float32) view of its stored shape."""

    name: str
    dtype: str
    raw: np.ndarray

    def values(self) -> np.ndarray:
        """Unscaled float64 values. FP4 bytes give twice the columns: the low nibble is the even column."""
        return decode(self.dtype, self.raw)


def decode(dtype: str, raw: np.ndarray) -> np.ndarray:
    """Stored elements of one safetensors dtype -> float64, without any scale."""
    if dtype == "BF16":
        return (raw.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if dtype == "F8_E4M3":
        return E4M3[raw]
    if dtype == "F8_E8M0":
        return E8M0[raw]
    if dtype == "I8":
        pairs = np.stack([E2M1[raw & 15], E2M1[raw >> 4]], axis=-1)
        return pairs.reshape(*raw.shape[:-1], 2 * raw.shape[-1])
    return raw.astype(np.float64)


def spread_scale(
    scale: np.ndarray, block_rows: int, block_columns: int, shape: tuple[int, int]
) -> np.ndarray:
    """Repeat a block scale over its blocks; the last block of a side may be cut short."""
    full = np.repeat(np.repeat(scale, block_rows, axis=0), block_columns, axis=1)
    return full[: shape[0], : shape[1]]


class CheckpointReader:
    """All tensors of a checkpoint directory by name (an optional `model.` prefix is dropped)."""

    def __init__(self, directory: Path) -> None:
        self._tensors: dict[str, StoredTensor] = {}
        for path in self._shards(directory):
            for tensor in read_file(path):
                self._tensors[tensor.name.removeprefix("model.")] = tensor

    @staticmethod
    def _shards(directory: Path) -> list[Path]:
        index = directory / INDEX_NAME
        if index.exists():
            names = set(json.loads(index.read_text())["weight_map"].values())
            return [directory / name for name in sorted(names)]
        return sorted(directory.glob("*.safetensors"))

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def stored(self, name: str) -> StoredTensor:
        """The tensor as stored; KeyError names what is missing."""
        return self._tensors[name]

    def plain(self, name: str) -> np.ndarray:
        """An unscaled (BF16 or F32) tensor in float64."""
        return self._tensors[name].values()

    def scaled(self, name: str) -> np.ndarray:
        """`name`.weight times `name`.scale in float64 [out, in]: FP8 in 32x32 blocks, FP4 in 1x32 groups."""
        weight = self._tensors[f"{name}.weight"]
        values = weight.values()
        block_rows = 1 if weight.dtype == "I8" else 32
        scale = self._tensors[f"{name}.scale"].values()
        return values * spread_scale(scale, block_rows, 32, values.shape)

    def scaled_rows(self, name: str, rows: np.ndarray) -> np.ndarray:
        """Rows of an FP8 table with one scale per row and 32 columns: rows [...] -> float64 [..., width]."""
        weight, scale = self._tensors[f"{name}.weight"], self._tensors[f"{name}.scale"]
        return decode(weight.dtype, weight.raw[rows]) * np.repeat(E8M0[scale.raw[rows]], 32, axis=-1)


def read_file(path: Path) -> list[StoredTensor]:
    """Map one safetensors file and return its tensors as views of the mapping."""
    data = np.memmap(path, dtype=np.uint8, mode="r")
    header_bytes = int.from_bytes(data[:8].tobytes(), "little")
    header = json.loads(data[8 : 8 + header_bytes].tobytes())
    header.pop("__metadata__", None)
    tensors = []
    for name, entry in header.items():
        begin, end = (8 + header_bytes + offset for offset in entry["data_offsets"])
        # A copy of the slice frees the view from the file's (possibly odd) byte alignment.
        raw = np.frombuffer(data[begin:end].tobytes(), dtype=RAW_TYPES[entry["dtype"]])
        tensors.append(StoredTensor(name, entry["dtype"], raw.reshape(entry["shape"])))
    return tensors
