"""Packed rows of state: what a quantizer rounds comes back bit for bit, and native bodies store and read the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dsv41c.compiler.ops.catalog import OPS
from dsv41c.compiler.ops.native import native_call
from dsv41c.compiler.ops.packed import FORMATS, FP4_INDEX, FP4_KV, FP8, Format, format_of
from dsv41c.tools.bench.cases_attention import packed_cases
from dsv41c.tools.bench.op_case import Case, results

QUANTIZER = {"fp8": "quantize_fp8", "fp4_kv": "quantize_fp4_kv", "fp4_index": "quantize_fp4_index"}


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**31), magnitude=st.integers(-40, 30), form=st.sampled_from(FORMATS),
       dtype=st.sampled_from([torch.float32, torch.bfloat16]), spread=st.floats(0, 3))
@example(seed=0, magnitude=-7, form=FP4_KV, dtype=torch.bfloat16, spread=0.3)  # scales of few e4m3 steps
@example(seed=1, magnitude=-6, form=FP4_KV, dtype=torch.float32, spread=0.3)
def test_what_a_quantizer_gives_comes_back_bit_for_bit(seed: int, magnitude: int, form: Format, dtype: torch.dtype,
                                                       spread: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(64, 64, generator=generator) * 2.0**magnitude
    x = (x * 2.0 ** (spread * torch.randn(64, 64, generator=generator))).to(dtype)
    x[0, :16], x[2] = 0.0, -0.0
    rounded = OPS[QUANTIZER[form.name]].reference(x)
    row = form.pack(rounded)
    assert row.shape == (64, form.row_bytes(64)) and row.dtype == torch.uint8
    assert torch.equal(bits(form.unpack(row, 64).to(dtype)), bits(rounded))


def bits(x: torch.Tensor) -> torch.Tensor:
    return x.view({torch.float32: torch.int32, torch.bfloat16: torch.int16}[x.dtype])


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_a_group_with_a_nan_is_nan_and_no_other(form: Format) -> None:
    x = torch.ones(3, 64)
    x[1, 35] = float("nan")
    found = form.unpack(form.pack(x), 64).isnan()
    first = 35 // form.group * form.group
    assert found[1, first : first + form.group].all() and found.sum() == form.group


@pytest.mark.parametrize("steps", range(1, 4 * 12))
def test_small_entry_scales_keep_their_grid(steps: int) -> None:
    """The largest value is a few quarters of 6 times the least scale: there scales are rounded by up to half."""
    largest = steps / 4 * 6 * 2.0**-9
    x = torch.linspace(-1, 1, 16).mul(largest).unsqueeze(0)
    rounded = OPS["quantize_fp4_kv"].reference(x)
    assert torch.equal(bits(FP4_KV.unpack(FP4_KV.pack(rounded), 16)), bits(rounded))


def test_sizes_of_the_published_rows() -> None:
    assert (FP8.row_bytes(512), FP4_KV.row_bytes(512), FP4_INDEX.row_bytes(128)) == (528, 288, 68)
    assert [format_of(n, 512) for n in (528, 288, 272)] == [FP8, FP4_KV, FP4_INDEX]
    with pytest.raises(ValueError, match="no packed format holds 512 numbers in 1024 bytes"):
        format_of(1024, 512)


@pytest.mark.parametrize("case", packed_cases(), ids=lambda c: f"{c.op}-{c.name}".replace(" ", "_"))
def test_native_bodies_read_and_store_packed_rows(case: Case) -> None:
    """The same bits as on rows that hold the numbers themselves, and the bytes of the reference."""
    ours, wanted = case.copied(), case.copied()
    found = results(native_call(case.spec)(*ours))
    expected = results(case.spec.reference(*wanted))
    for mine, its in zip(case.written(ours), case.written(wanted), strict=True):
        assert torch.equal(mine, its)
    plain = plain_arguments(case)
    for mine, its, own in zip(found, expected, results(native_call(case.spec)(*plain)), strict=True):
        live = case.live()
        assert torch.equal(mine[live], own[live])
        torch.testing.assert_close(mine[live], its[live], rtol=2**-7, atol=1e-5)


def plain_arguments(case: Case) -> list[Any]:
    """The case with its packed states unpacked."""
    given = case.copied()
    width = next(a.shape[-1] for a in given if isinstance(a, torch.Tensor) and a.is_floating_point())
    dtype = given[0].dtype
    return [format_of(a.shape[-1], width).unpack(a, width).to(dtype)
            if isinstance(a, torch.Tensor) and a.dtype == torch.uint8 else a for a in given]
