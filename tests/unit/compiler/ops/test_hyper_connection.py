"""Hyper-connection ops: the mix against its reference and bounds, sums in their stated order, row laws."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv41c.compiler.ops.catalog import OPS
from tests.unit.compiler.ops.row_laws import (
    assert_fake_matches,
    assert_row_invariant,
    assert_same_bits,
    relative_error,
)

ACTIVATIONS = [torch.float32, torch.bfloat16]
OP = torch.ops.dsv41c
MIX = (20, 1e-20, 1e-6)  # iterations, rms_eps, hc_eps


def random_tensor(seed: int, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def site(seed: int, streams: int, width: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """fn, scale and base of one mix site."""
    channels = streams * (streams + 2)
    fn = random_tensor(seed, channels, streams * width) / (streams * width) ** 0.5
    return fn, random_tensor(seed + 1, 3), random_tensor(seed + 2, channels)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**31), rows=st.integers(1, 9), streams=st.sampled_from([1, 2, 4]),
       width=st.integers(1, 100), dtype=st.sampled_from(ACTIVATIONS))
def test_mix_agrees_with_reference(
    seed: int, rows: int, streams: int, width: int, dtype: torch.dtype
) -> None:
    x = random_tensor(seed, rows, streams, width, dtype=dtype)
    arguments = (x, *site(seed + 1, streams, width), *MIX)
    for got, want in zip(OP.mhc_mix(*arguments), OPS["mhc_mix"].reference(*arguments), strict=True):
        assert relative_error(got, want) <= 2e-6
    assert_fake_matches(OPS["mhc_mix"].fake, OP.mhc_mix, *arguments)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**31), sharpness=st.floats(0.0, 3.0))
def test_mix_bounds(seed: int, sharpness: float) -> None:
    """G: columns of gamma sum to 1, its entries are not negative, alpha and beta stay inside their ranges."""
    fn, scale, base = site(seed, 4, 32)
    alpha, beta, gamma = OP.mhc_mix(random_tensor(seed + 3, 5, 4, 32), fn, scale * sharpness, base, *MIX)
    assert (gamma >= 0).all() and ((gamma.sum(1) - 1).abs() <= 1e-5).all()
    # The open ranges of real numbers, closed because float32 rounds a sigmoid near 1 to 1.
    assert (alpha > 1e-6).all() and (alpha <= 1 + 1e-6).all()
    assert (beta > 0).all() and (beta <= 2).all()


def test_mix_of_a_zero_row_is_the_base_alone() -> None:
    fn, scale, base = site(0, 4, 32)
    alpha, beta, gamma = OP.mhc_mix(torch.zeros(1, 4, 32), fn, scale, base, *MIX)
    torch.testing.assert_close(alpha[0], torch.sigmoid(base[:4]) + 1e-6)
    torch.testing.assert_close(beta[0], 2 * torch.sigmoid(base[4:8]))
    assert gamma.isfinite().all()


@pytest.mark.parametrize("dtype", ACTIVATIONS)
@pytest.mark.parametrize("width", [16, 25, 64])
def test_mix_rows_stand_alone(dtype: torch.dtype, width: int) -> None:
    fixed = site(1, 4, width)
    assert_row_invariant(lambda x: OP.mhc_mix(x, *fixed, *MIX), [random_tensor(0, 6, 4, width, dtype=dtype)])


@pytest.mark.parametrize("dtype", ACTIVATIONS)
def test_collapse(dtype: torch.dtype) -> None:
    streams, alpha = random_tensor(0, 6, 4, 33, dtype=dtype), random_tensor(1, 6, 4)
    wide = streams.float()
    want = alpha[:, :1] * wide[:, 0]
    for s in range(1, 4):
        want = want + alpha[:, s : s + 1] * wide[:, s]
    assert_same_bits(OP.mhc_collapse(streams, alpha), want.to(dtype), "ascending streams, one rounding")
    assert_fake_matches(OPS["mhc_collapse"].fake, OP.mhc_collapse, streams, alpha)
    assert_row_invariant(OP.mhc_collapse, [streams, alpha])


@pytest.mark.parametrize("dtype", ACTIVATIONS)
def test_post(dtype: torch.dtype) -> None:
    streams, y = random_tensor(0, 6, 4, 33, dtype=dtype), random_tensor(1, 6, 33, dtype=dtype)
    beta, gamma = random_tensor(2, 6, 4), random_tensor(3, 6, 4, 4)
    wide = streams.float()
    want = torch.empty(6, 4, 33)
    for k in range(4):
        want[:, k] = beta[:, k : k + 1] * y.float()
        for j in range(4):
            want[:, k] += gamma[:, j, k, None] * wide[:, j]
    assert_same_bits(OP.mhc_post(y, streams, beta, gamma), want.to(dtype), "ascending sources, one rounding")
    assert_fake_matches(OPS["mhc_post"].fake, OP.mhc_post, y, streams, beta, gamma)
    assert_row_invariant(OP.mhc_post, [y, streams, beta, gamma])


@pytest.mark.parametrize("dtype", ACTIVATIONS)
def test_stream_mean(dtype: torch.dtype) -> None:
    streams = random_tensor(0, 6, 4, 33, dtype=dtype)
    wide = streams.float()
    want = (wide[:, 0] + wide[:, 1] + wide[:, 2] + wide[:, 3]) / 4
    assert_same_bits(OP.stream_mean(streams), want.to(dtype), "ascending streams, one rounding")
    assert_fake_matches(OPS["stream_mean"].fake, OP.stream_mean, streams)
    assert_row_invariant(OP.stream_mean, [streams])
