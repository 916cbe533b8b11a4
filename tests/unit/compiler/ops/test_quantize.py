"""Fake quantizers: scale and tie rules at their corners, the exact oracle, idempotence, row laws."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv41c.compiler.ops.catalog import OPS
from tests.oracle import quantizers as oracle
from tests.unit.compiler.ops.row_laws import assert_fake_matches, assert_row_invariant, assert_same_bits

OP = torch.ops.dsv41c
NAMES = ["quantize_fp8", "quantize_fp4_index", "quantize_fp4_kv"]
GROUP = {"quantize_fp8": 32, "quantize_fp4_index": 32, "quantize_fp4_kv": 16}
TIES = {0.25: 0, 0.75: 1, 1.25: 1, 1.75: 2, 2.5: 2, 3.5: 4, 5.0: 4}


def group(*values: float, size: int = 32) -> torch.Tensor:
    """One group that starts with `values` and goes on with zeros."""
    return torch.tensor([*values, *[0.0] * (size - len(values))]).unsqueeze(0)


def next_up(value: float) -> float:
    return float(np.nextafter(np.float32(value), np.float32(np.inf)))


def next_down(value: float) -> float:
    return float(np.nextafter(np.float32(value), np.float32(-np.inf)))


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 2**31), magnitude=st.floats(-40, 30), spread=st.floats(0, 3),
       name=st.sampled_from(NAMES), dtype=st.sampled_from([torch.float32, torch.bfloat16]))
def test_equals_the_float64_oracle(
    seed: int, magnitude: float, spread: float, name: str, dtype: torch.dtype
) -> None:
    value, exponent = torch.randn(2, 4, 2, 64, generator=torch.Generator().manual_seed(seed))
    x = (value * exponent.mul(spread).exp() * 2.0**magnitude).to(dtype)
    got = getattr(OP, name)(x)
    assert_same_bits(got, torch.from_numpy(getattr(oracle, name)(x.double().numpy())).to(dtype), name)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**31), magnitude=st.sampled_from([1e-7, 1e-3, 1.0, 50.0, 1e4]),
       name=st.sampled_from(NAMES))
def test_idempotent(seed: int, magnitude: float, name: str) -> None:
    x = torch.randn(8, 64, generator=torch.Generator().manual_seed(seed)) * magnitude
    once = getattr(OP, name)(x)
    twice = getattr(OP, name)(once)
    if name == "quantize_fp4_kv":  # promised while the group's scale is a normal e4m3 number
        largest = x.view(8, 4, 16).abs().amax(-1, keepdim=True) / 6
        kept = ((largest >= 2.0**-6) & (largest <= 448)).expand(8, 4, 16).reshape(8, 64)
        once, twice = once[kept], twice[kept]
    assert_same_bits(twice, once, name)


@pytest.mark.parametrize("step", range(16))
def test_error_stays_within_the_format_for_every_scale_fraction(step: int) -> None:
    """C24: the scale is a power of two before the values are divided by it."""
    largest = 448 * (1 + step / 16)
    x = torch.linspace(-largest, largest, 32).unsqueeze(0)
    got = OP.quantize_fp8(x)
    normal = x.abs() >= 2.0**-6 * 2  # the scale is 1 or 2
    assert ((got - x).abs()[normal] <= x.abs()[normal] * 2.0**-4).all()


@settings(max_examples=60, deadline=None)
@given(exponent=st.integers(-60, 60), sign=st.sampled_from([1.0, -1.0]))
def test_e2m1_ties_go_to_the_even_code(exponent: int, sign: float) -> None:
    """C36: at a tie, one ulp to either side, and above the largest value."""
    scale = sign * 2.0**exponent
    for tie, even in TIES.items():
        below = max(v for v in oracle.E2M1_GRID if v < tie)
        above = min(v for v in oracle.E2M1_GRID if v > tie)
        x = group(6.0 * scale, tie * scale, next_down(tie) * scale, next_up(tie) * scale)
        want = group(6.0 * scale, even * scale, below * scale, above * scale)[0, :4]
        assert torch.equal(OP.quantize_fp4_index(x)[0, :4], want)
        if -8 <= exponent <= 8:  # a scale that e4m3 holds exactly
            assert torch.equal(OP.quantize_fp4_kv(x[:, :16])[0, :4], want)


def test_quotients_above_six_saturate() -> None:
    # 6.37 / 6 rounds down to the e4m3 scale 1: the quotient is above 6. 6 * 449 / 448 is above any scale.
    assert OP.quantize_fp4_kv(group(6.37, -6.37, size=16))[0, :2].tolist() == [6.0, -6.0]
    assert OP.quantize_fp4_kv(group(1e6, -1e6, size=16))[0, :2].tolist() == [2688.0, -2688.0]


@pytest.mark.parametrize("name", NAMES)
def test_the_sign_of_zero_is_kept(name: str) -> None:
    x = group(1.0, -0.0, 0.0, -1e-6, 1e-6)[:, : GROUP[name]]
    assert torch.signbit(getattr(OP, name)(x))[0, :5].tolist() == [False, True, False, True, False]


@pytest.mark.parametrize("exponent", range(-20, 21))
@pytest.mark.parametrize(
    ("name", "limit", "smallest"), [("quantize_fp8", 448.0, 2.0**-9), ("quantize_fp4_index", 6.0, 0.5)]
)
def test_scale_next_to_a_power_of_two(name: str, limit: float, smallest: float, exponent: int) -> None:
    """C37: amax at M * 2**k gives scale 2**k, as does one ulp below; one ulp above gives 2**(k+1)."""
    largest, probe = limit * 2.0**exponent, smallest * 2.0**exponent
    # The grid's smallest value times 2**k stands on the grid of 2**k; in that of 2**(k+1) it ties down to 0.
    for amax, kept in ((next_down(largest), probe), (largest, probe), (next_up(largest), 0.0)):
        assert getattr(OP, name)(group(amax, probe))[0, :2].tolist() == [largest, kept]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [0.0, 1e-30, 1e-40, 2.0**-149])
def test_tiny_rows_stay_finite(name: str, value: float) -> None:
    got = getattr(OP, name)(torch.full((2, 64), value))
    assert got.isfinite().all() and (got.abs() <= max(value * 2, 1e-44)).all()


def test_e4m3_is_rounded_once() -> None:
    """C38: float32 goes to e4m3 directly; by way of a narrower format values above a midpoint fall down."""
    x = group(448.0, 400.1996, 272.1566, 136.0021)
    assert OP.quantize_fp8(x)[0, :4].tolist() == [448.0, 416.0, 288.0, 144.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_e4m3_equals_the_cast_of_torch(dtype: torch.dtype) -> None:
    values = (torch.rand(2**16, generator=torch.Generator().manual_seed(0)) * 896 - 448).to(dtype)
    x = torch.cat([torch.full((2**16 // 16, 1), 448.0, dtype=dtype), values.view(-1, 16)], 1)
    x = torch.nn.functional.pad(x, (0, 15))
    got = OP.quantize_fp8(x)[:, 1:17]
    assert_same_bits(got, values.view(-1, 16).to(torch.float8_e4m3fn).to(dtype), "scale 1")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(6, 32), (5, 3, 96), (3, 2048)])
def test_rows_stand_alone(name: str, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    op = getattr(OP, name)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(math.prod(shape))).to(dtype)
    assert_row_invariant(op, [x])
    assert_fake_matches(OPS[name].fake, op, x)
