"""Fake quantizers in exact float64 arithmetic: round to the stored grid and back, shape kept.

Every function groups the last dimension, which must be a multiple of the group size.
"""

from __future__ import annotations

import numpy as np

E4M3_GRID = np.concatenate(
    [np.arange(8) / 8 * 2.0**-6, *[(1 + np.arange(8) / 8) * 2.0 ** (e - 7) for e in range(1, 16)]]
)[:-1]  # the last code is NaN, so the grid ends at 448
E2M1_GRID = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def round_to_grid(values: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """Nearest grid magnitude, ties to the even code, saturating at the last one; the sign is kept."""
    magnitude = np.abs(values)
    upper = np.clip(np.searchsorted(grid, magnitude), 1, len(grid) - 1)
    low, high = grid[upper - 1], grid[upper]
    middle = (low + high) / 2  # exact: neighbours share an exponent or differ by one
    go_up = (magnitude > middle) | ((magnitude == middle) & (upper % 2 == 0))
    rounded = np.where(magnitude >= grid[-1], grid[-1], np.where(go_up, high, low))
    return np.copysign(rounded, values)


def power_of_two_at_least(values: np.ndarray) -> np.ndarray:
    """2**ceil(log2(v)) from the bits, without a logarithm."""
    mantissa, exponent = np.frexp(values)
    return np.ldexp(1.0, np.where(mantissa == 0.5, exponent - 1, exponent))


def _grouped(values: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """View as [..., groups, size] and the largest magnitude [..., groups, 1]."""
    groups = values.reshape(*values.shape[:-1], values.shape[-1] // size, size)
    return groups, np.abs(groups).max(-1, keepdims=True)


def quantize_fp8(values: np.ndarray) -> np.ndarray:
    """Q8: groups of 32, power-of-two scale of max(amax, 1e-4)/448, e4m3 elements."""
    groups, largest = _grouped(values, 32)
    scale = power_of_two_at_least(np.maximum(largest, 1e-4) / 448)
    return (round_to_grid(groups / scale, E4M3_GRID) * scale).reshape(values.shape)


def quantize_fp4_index(values: np.ndarray) -> np.ndarray:
    """Q4i: groups of 32, power-of-two scale of max(amax, 6*2**-126)/6, e2m1 elements."""
    groups, largest = _grouped(values, 32)
    scale = power_of_two_at_least(np.maximum(largest, 6 * 2.0**-126) / 6)
    return (round_to_grid(groups / scale, E2M1_GRID) * scale).reshape(values.shape)


def quantize_fp4_kv(values: np.ndarray) -> np.ndarray:
    """Q4k: groups of 16, an e4m3 scale of clip(amax/6, 2**-9, 448), e2m1 elements."""
    groups, largest = _grouped(values, 16)
    scale = round_to_grid(np.clip(largest / 6, 2.0**-9, 448), E4M3_GRID)
    return (round_to_grid(groups / scale, E2M1_GRID) * scale).reshape(values.shape)


def keep(values: np.ndarray) -> np.ndarray:
    """The quantizer of `quantizers='off'`."""
    return values
