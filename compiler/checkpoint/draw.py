"""Random weights from integer draws: one seed gives the same bytes on every machine.

Only raw PCG64 words, integer arithmetic and the correctly rounded float operations (+ - * / sqrt) take part,
and each tensor has its own stream keyed by (seed, name): library versions and tensor order do not matter.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsv41c.compiler.checkpoint.layout import BLOCK, TensorSpec

E8M0_BIAS = 127
_PART = 1 << 22  # elements of one part of a tensor; a multiple of the 8 bytes of a word
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
# Exponent offsets of neighbouring scales; differing ones make a scale read from the wrong block visible.
_JITTER = np.array([-1, 0, 0, 1], dtype=np.int16)

# role -> (centre, half width) of a uniform draw; None: half width sqrt(3 / fan_in), standard deviation
# 1 / sqrt(fan_in), which keeps activations of order 1 from layer to layer.
_UNIFORM: dict[str, tuple[float, float | None]] = {
    "embedding": (0.0, math.sqrt(3.0)),
    "matrix": (0.0, None),
    "norm": (1.0, 0.1),
    "sink": (0.0, 1.0),
    "hc_fn": (0.0, None),
    "hc_base": (0.0, 0.5),
    "hc_scale": (0.3, 0.05),
    "gate_bias": (0.0, 0.1),
}


def draw_tensor(seed: int, name: str, spec: TensorSpec) -> NDArray[Any]:
    """Storage form of one tensor: BF16 as uint16, F8 as uint8, I8 as int8, F32 as float32."""
    return np.concatenate(list(draw_parts(seed, name, spec))).reshape(spec.shape)


def draw_parts(seed: int, name: str, spec: TensorSpec) -> Iterator[NDArray[Any]]:
    """The same elements, flat and in parts: a table of the published model is larger than memory."""
    stream = _stream(seed, name)
    width = 2 if spec.role in _UNIFORM else 1
    left = math.prod(spec.shape)
    while left:
        count = min(left, _PART)
        yield _stored(_next_bytes(stream, count * width), spec)
        left -= count


def draw_bytes(seed: int, name: str, count: int) -> NDArray[np.uint8]:
    """`count` bytes of the stream that belongs to (seed, name)."""
    return _next_bytes(_stream(seed, name), count)


def _stream(seed: int, name: str) -> np.random.PCG64:
    key = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    return np.random.PCG64(int.from_bytes(key[:16], "little"))


def _next_bytes(stream: np.random.PCG64, count: int) -> NDArray[np.uint8]:
    """Whole words are taken: only the last piece of a stream may end within one."""
    words = stream.random_raw(-(-count // 8))
    return np.asarray(words).astype("<u8").view(np.uint8)[:count]


def _stored(raw: NDArray[np.uint8], spec: TensorSpec) -> NDArray[Any]:
    if spec.role in _UNIFORM:
        values = _uniform(raw.view("<u2"), spec)
        return bf16_bits(values) if spec.dtype == "BF16" else np.asarray(values, dtype=np.float32)
    if spec.role in ("fp8", "fp8_rows"):
        # 0x7f and 0xff are NaN; the largest finite code of the same sign takes their place.
        return np.where(raw & 0x7F == 0x7F, raw - np.uint8(1), raw)
    if spec.role == "fp4":
        return raw.view(np.int8)
    return np.asarray(_scale_exponent(spec) + E8M0_BIAS + _JITTER[raw & 3], dtype=np.uint8)


def bf16_bits(values: NDArray[np.float64]) -> NDArray[np.uint16]:
    """Bit patterns of the values as bfloat16, rounded to nearest even (finite values only)."""
    bits = values.astype(np.float32).view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return (rounded >> np.uint32(16)).astype(np.uint16)


def e4m3_values() -> NDArray[np.float64]:
    """Value of every e4m3fn code; the two NaN codes are NaN."""
    code = np.arange(256)
    exponent, mantissa = (code >> 3) & 15, code & 7
    scaled = np.where(exponent == 0, mantissa, mantissa + 8)
    magnitude = scaled * np.exp2(np.maximum(exponent, 1) - 10.0)
    magnitude[code & 0x7F == 0x7F] = np.nan
    result: NDArray[np.float64] = np.where(code < 128, magnitude, -magnitude)
    return result


def _uniform(draws: NDArray[np.uint16], spec: TensorSpec) -> NDArray[np.float64]:
    centre, width = _UNIFORM[spec.role]
    if width is None:
        width = math.sqrt(3.0 / spec.shape[-1])
    odd = 2.0 * draws - 65535.0  # symmetric around zero, never zero
    result: NDArray[np.float64] = odd * (width / 65535.0) + centre
    return result


def _scale_exponent(spec: TensorSpec) -> int:
    """Exponent that brings uniformly drawn codes to a standard deviation of about 1 / sqrt(fan_in).

    Engram rows are activations rather than weights: they aim at a standard deviation of 1.
    """
    if spec.role == "fp4_scale":
        mean_square = sum(value * value for value in E2M1) / len(E2M1)
    else:
        finite = e4m3_values()[:127]
        mean_square = (float(np.sum(finite * finite)) + 448.0**2) / 128
    fan_in = 1 if spec.role == "fp8_rows_scale" else BLOCK * spec.shape[-1]
    jitter_square = (0.25 + 1.0 + 1.0 + 4.0) / 4
    # frexp gives target = m * 2^x with m in [1/2, 1): the nearest power of four to it is 4^(x // 2).
    return math.frexp(1.0 / (mean_square * jitter_square * fan_in))[1] // 2
