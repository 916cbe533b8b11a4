"""Fused ops equal the ops that they replace, and their stored forms decode to the same numbers."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from dsv41c.compiler.ops.catalog import OPS
from dsv41c.compiler.ops.mega import arrange_mix, mxfp8, restore_mix

HIDDEN, EPS, HC_EPS = 128, 1e-20, 1e-6
REFERENCE = {name: spec.reference for name, spec in OPS.items()}


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(torch.bfloat16)


def decoded(codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    return codes.float() * scales.float().repeat_interleave(32, -1)


def mhc_arguments(rows: int) -> list[object]:
    fn = normal(24, 4 * HIDDEN, seed=1).float() * 0.1 + 1e-3
    return [normal(rows, HIDDEN), normal(rows, 4, HIDDEN, seed=2), normal(rows, 4, seed=3).float().abs(),
            normal(rows, 4, seed=4).float().abs(), normal(rows, 4, 4, seed=5).float().abs() / 4, arrange_mix(fn),
            torch.tensor([0.7, 1.1, 0.9]), normal(24, seed=6).float(), normal(HIDDEN, seed=7), 20, EPS, HC_EPS]


def row_table(groups: list[tuple[int, int, int]], pads: int) -> torch.Tensor:
    """(slot, base, count) of each group, then pad rows of slot 3."""
    rows: list[list[int]] = []
    for slot, base, count in groups:
        first = len(rows)
        rows += [[slot, base + i, base, first, count, 0, 0, 0] for i in range(count)]
    rows += [[3, 0, 0, len(rows) + i, 1, 0, 0, 5] for i in range(pads)]
    return torch.tensor(rows, dtype=torch.int32)


def test_arranged_mix_weights_keep_sixteen_bits() -> None:
    fn = torch.randn(24, 4 * 192, generator=torch.Generator().manual_seed(8))
    arranged = arrange_mix(fn)
    assert arranged.shape == (3, 48, 256)
    assert bool(((restore_mix(arranged) - fn).abs() <= fn.abs() * 2.0**-16).all())


def test_mxfp8_is_the_fake_quantizer_before_it_multiplies_back() -> None:
    x = normal(9, 96) * 10
    assert torch.equal(decoded(*mxfp8(x)), REFERENCE["quantize_fp8"](x).float())


def test_mega_mhc_is_its_parts() -> None:
    args = mhc_arguments(7)
    y, streams, alpha, beta, gamma, fn, scale, base, weight = args[:9]
    after = REFERENCE["mhc_post"](y, streams, beta, gamma)
    mixes = REFERENCE["mhc_mix"](after, restore_mix(fn), scale, base, 20, EPS, HC_EPS)
    x = REFERENCE["rms_norm"](REFERENCE["mhc_collapse"](after, alpha), weight, EPS)
    out = torch.ops.dsv41c.mega_mhc(*args)
    for ours, wanted in zip(out, (after, *mixes, x, *mxfp8(x)), strict=True):
        assert torch.equal(ours.view(torch.uint8), wanted.view(torch.uint8))


def test_norm_rope_store_stores_what_the_ring_would_hold() -> None:
    """A chunk longer than the ring leaves its last rows; pad rows, NaN here, write nothing."""
    kv, weight, ring = normal(20, 64), normal(64, seed=1), 5
    table = row_table([(0, 3, 2), (1, 30, 12), (2, 0, 3)], pads=3)
    kv[17:] = float("nan")
    angle = torch.rand(64, 16, generator=torch.Generator().manual_seed(2))
    angles = torch.stack((angle.cos(), angle.sin()), -1)
    packed = torch.full((4, ring, 66), 171, dtype=torch.uint8)
    torch.ops.dsv41c.norm_rope_store(kv, weight, table, angles, packed, EPS)
    wide = torch.full((4, ring, 64), float("nan"), dtype=torch.bfloat16)
    key = REFERENCE["rotary"](REFERENCE["rms_norm"](kv, weight, EPS), table, angles, 1, False)
    REFERENCE["window_commit"](REFERENCE["quantize_fp8"](key), table, wide)
    written = ~wide.isnan().any(-1)
    assert int(written.sum()) == 2 + ring + 3
    assert bool((packed[~written] == 171).all())
    entries = packed[written]
    codes, scales = entries[:, :64].contiguous(), entries[:, 64:].contiguous()
    numbers = decoded(codes.view(torch.float8_e4m3fn), scales.view(torch.float8_e8m0fnu))
    assert torch.equal(numbers, wide[written].float())


@pytest.mark.parametrize("name", ["mega_mhc", "rmsnorm_mxfp8"])
def test_fake_outputs_have_the_real_shapes(name: str) -> None:
    args = mhc_arguments(3) if name == "mega_mhc" else [normal(3, 64), normal(64), EPS]
    op = getattr(torch.ops.dsv41c, name)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode:
        fakes = op(*(mode.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in args))
    for fake, real in zip(fakes, op(*args), strict=True):
        assert (fake.shape, fake.dtype) == (real.shape, real.dtype)
