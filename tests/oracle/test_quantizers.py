"""Quantizer properties (K): grids, ties, scale steps at powers of two, idempotence, error level."""

from __future__ import annotations

import numpy as np
import pytest

from oracle.quantizers import quantize_fp4_index, quantize_fp4_kv, quantize_fp8, round_to_grid
from oracle.reader import E2M1, E4M3, E8M0, decode
from oracle.weights import Quantizer

SCALES = (1e-7, 1e-3, 1.0, 50.0, 1e4)


def sample(scale: float) -> np.ndarray:
    """Gaussian rows [4096, 128] whose magnitudes spread around `scale`."""
    rng = np.random.default_rng(0)
    return rng.standard_normal((4096, 128)) * scale * np.exp(rng.standard_normal((4096, 1)))


def error(quantize: Quantizer, values: np.ndarray) -> float:
    return float(np.linalg.norm(quantize(values) - values) / np.linalg.norm(values))


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("quantize", [quantize_fp8, quantize_fp4_index])
def test_k_power_of_two_quantizers_are_idempotent(quantize: Quantizer, scale: float) -> None:
    once = quantize(sample(scale))
    assert np.array_equal(quantize(once), once)


@pytest.mark.parametrize("scale", SCALES)
def test_k_kv_quantizer_is_idempotent_where_its_scale_is_normal(scale: float) -> None:
    values = sample(scale)
    once = quantize_fp4_kv(values)
    ideal = np.abs(values.reshape(-1, 16)).max(-1) / 6
    normal = (ideal >= 2.0**-6) & (ideal <= 448)
    same = (quantize_fp4_kv(once) == once).reshape(-1, 16).all(-1)
    assert same[normal].all()


@pytest.mark.parametrize(
    ("quantize", "expected"), [(quantize_fp8, 0.026), (quantize_fp4_index, 0.117), (quantize_fp4_kv, 0.095)]
)
def test_k_relative_error_on_gaussian_data(quantize: Quantizer, expected: float) -> None:
    assert error(quantize, sample(1.0)) == pytest.approx(expected, abs=0.002)


@pytest.mark.parametrize("exponent", range(-12, 13, 4))
@pytest.mark.parametrize(("quantize", "top"), [(quantize_fp8, 448.0), (quantize_fp4_index, 6.0)])
def test_scale_steps_exactly_after_the_largest_code(quantize: Quantizer, top: float, exponent: int) -> None:
    largest = top * 2.0**exponent
    group = np.full(32, largest)
    assert np.array_equal(quantize(group), group)
    above = np.nextafter(largest, np.inf)
    # One ulp more doubles the scale; the largest element then lies between two codes of the coarser grid.
    coarse = quantize(np.array([above, *[2.0 ** (exponent - 1)] * 31]))
    assert coarse[0] == largest


def test_fp4_ties_go_to_the_even_code() -> None:
    ties = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 6.0])
    expected = np.array([0.0, 1, 1, 2, 2, 4, 4, 6])
    group = np.concatenate([ties, -ties, ties, -ties])
    assert np.array_equal(quantize_fp4_index(group), np.concatenate([expected, -expected] * 2))
    assert np.array_equal(quantize_fp4_kv(group), np.concatenate([expected, -expected] * 2))


def test_zero_and_denormal_groups_stay_finite() -> None:
    for quantize in (quantize_fp8, quantize_fp4_index, quantize_fp4_kv):
        for value in (0.0, 1e-30, 1e-45):
            assert np.isfinite(quantize(np.full(32, value))).all()


def test_grid_saturates_and_keeps_signs() -> None:
    grid = np.array([0, 1, 2.0])
    assert round_to_grid(np.array([-9.0, 9, -0.2]), grid).tolist() == [-2, 2, 0]


def test_stored_formats_decode_to_their_published_values() -> None:
    assert E4M3[[0x00, 0x01, 0x38, 0x7E, 0xB8]].tolist() == [0, 2.0**-9, 1, 448, -1]
    assert np.isnan(E4M3[[0x7F, 0xFF]]).all()
    assert E8M0[[0, 127, 128]].tolist() == [2.0**-127, 1, 2]
    assert E2M1[1:8].tolist() == [0.5, 1, 1.5, 2, 3, 4, 6]
    # Low nibble = even column: byte 0xF1 holds 0.5 then -6.
    assert decode("I8", np.array([[0xF1]], dtype=np.uint8)).tolist() == [[0.5, -6]]
    assert decode("BF16", np.array([0x3F80, 0xC040], dtype="<u2")).tolist() == [1, -3]
