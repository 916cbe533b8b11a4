"""Dense ops: native kernels against their references, row laws, the corners of each definition."""

from __future__ import annotations

import math

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


def random_tensor(seed: int, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def block_weight(seed: int, rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    """An e4m3 weight with scales between 2**-4 and 2**4."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(rows, columns, generator=generator).clamp(-400, 400).to(torch.float8_e4m3fn)
    shape = (math.ceil(rows / 32), math.ceil(columns / 32))
    scale = torch.randint(123, 132, shape, generator=generator, dtype=torch.uint8)
    return weight, scale.view(torch.float8_e8m0fnu)


def make_weight(kind: str, seed: int, rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor | None]:
    if kind == "e4m3":
        return block_weight(seed, rows, columns)
    return random_tensor(seed, rows, columns, dtype=getattr(torch, kind)), None


def row_table(positions: list[int], tokens: list[int] | None = None) -> torch.Tensor:
    rows = torch.zeros(len(positions), 8, dtype=torch.int32)
    rows[:, 1] = torch.tensor(positions)
    rows[:, 5] = torch.tensor(tokens or [0] * len(positions))
    return rows


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**31), kind=st.sampled_from(["float32", "bfloat16", "e4m3"]),
       rows=st.integers(1, 9), width=st.integers(1, 70), outputs=st.integers(40, 70),
       activation=st.sampled_from(ACTIVATIONS))
def test_linear_agrees_with_reference(
    seed: int, kind: str, rows: int, width: int, outputs: int, activation: torch.dtype
) -> None:
    x = random_tensor(seed, rows, width, dtype=activation)
    weight, scale = make_weight(kind, seed + 1, outputs, width)
    got = OP.linear(x, weight, scale, torch.float32)
    assert relative_error(got, OPS["linear"].reference(x, weight, scale, torch.float32)) <= 2e-6
    narrow = OP.linear(x, weight, scale, torch.bfloat16)
    assert_same_bits(narrow, got.to(torch.bfloat16), "one final rounding")
    assert_fake_matches(OPS["linear"].fake, OP.linear, x, weight, scale, torch.bfloat16)


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "e4m3"])
@pytest.mark.parametrize("width", [32, 48, 100, 1000])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_linear_rows_stand_alone(kind: str, width: int, activation: torch.dtype) -> None:
    weight, scale = make_weight(kind, 1, 37, width)
    assert_row_invariant(lambda x: OP.linear(x, weight, scale, activation),
                         [random_tensor(0, 7, width, dtype=activation)])


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "e4m3"])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 11])
def test_linear_output_does_not_depend_on_the_other_outputs(kind: str, count: int) -> None:
    x, (weight, scale) = random_tensor(0, 5, 99), make_weight(kind, 1, 64, 99)
    whole = OP.linear(x, weight, scale, torch.float32)
    part = OP.linear(x, weight[32 : 32 + count], None if scale is None else scale[1:2], torch.float32)
    assert_same_bits(part, whole[:, 32 : 32 + count], f"outputs 32..{32 + count}")


def test_linear_expands_every_e4m3_code_exactly() -> None:
    codes = torch.arange(256, dtype=torch.uint8)
    number = codes & 0x7F != 0x7F  # a NaN would spoil every sum: its two codes are tried apart
    weight = torch.where(number, codes, 0).view(torch.float8_e4m3fn).unsqueeze(0)
    scale = torch.tensor([[0, 1, 100, 126, 127, 128, 200, 240]], dtype=torch.uint8).view(torch.float8_e8m0fnu)
    got = OP.linear(torch.eye(256), weight, scale, torch.float32).flatten()
    assert torch.equal(got, weight[0].float() * scale[0].float().repeat_interleave(32))
    for code in codes[~number]:
        weight = code.view(1, 1).view(torch.float8_e4m3fn)
        assert OP.linear(torch.ones(1, 1), weight, scale[:, :1], torch.float32).isnan().all()


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**31), groups=st.integers(1, 4), width=st.integers(1, 70),
       outputs=st.integers(9, 40), activation=st.sampled_from(ACTIVATIONS))
def test_grouped_linear_is_one_linear_per_group(
    seed: int, groups: int, width: int, outputs: int, activation: torch.dtype
) -> None:
    x = random_tensor(seed, 5, groups, width, dtype=activation)
    weight, scale = block_weight(seed + 1, groups * outputs, width)
    got = OP.grouped_linear(x, weight, scale, groups, torch.float32)
    want = OPS["grouped_linear"].reference(x, weight, scale, groups, torch.float32)
    assert relative_error(got, want) <= 2e-6
    dense = OPS["linear"].reference(torch.eye(width), weight, scale, torch.float32).T
    for g in range(groups):
        rows = slice(g * outputs, (g + 1) * outputs)
        each = OP.linear(x[:, g].contiguous(), dense[rows].contiguous(), None, torch.float32)
        assert_same_bits(got[:, rows], each, f"group {g}")
    assert_fake_matches(OPS["grouped_linear"].fake, OP.grouped_linear, x, weight, scale, groups, activation)
    assert_row_invariant(lambda a: OP.grouped_linear(a, weight, scale, groups, activation), [x])


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("shape", [(6, 32), (6, 61), (5, 4, 512), (6, 5120)])
def test_rms_norm(shape: tuple[int, ...], activation: torch.dtype) -> None:
    x = random_tensor(0, *shape, dtype=activation)
    weight = random_tensor(1, shape[-1], dtype=torch.bfloat16)
    wide = x.double()
    want = wide * (wide.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * weight.double()
    got = OP.rms_norm(x, weight, 1e-6)
    assert relative_error(got, want) <= (2e-6 if activation == torch.float32 else 4e-3)
    assert_fake_matches(OPS["rms_norm"].fake, OP.rms_norm, x, weight, 1e-6)
    assert_row_invariant(lambda a: OP.rms_norm(a, weight, 1e-6), [x])


def test_rms_norm_of_a_zero_row_is_zero() -> None:
    assert torch.equal(OP.rms_norm(torch.zeros(2, 64), torch.ones(64), 1e-20), torch.zeros(2, 64))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_embed_expand(activation: torch.dtype) -> None:
    weight = random_tensor(0, 10, 8, dtype=torch.bfloat16)
    rows = row_table([0] * 5, [3, 9, 0, -1, 10])
    expanded, alpha = OP.embed_expand(rows, weight, 4, activation)
    want = torch.stack([weight[3], weight[9], weight[0], torch.zeros(8), torch.zeros(8)]).to(activation)
    assert torch.equal(expanded, want.unsqueeze(1).expand(5, 4, 8))
    assert torch.equal(alpha, torch.tensor([1.0, 0, 0, 0]).expand(5, 4))
    assert_fake_matches(OPS["embed_expand"].fake, OP.embed_expand, rows, weight, 4, activation)
    assert_row_invariant(lambda r: OP.embed_expand(r, weight, 4, activation), [rows])


def rotary_table(positions: int, pairs: int) -> torch.Tensor:
    angle = torch.arange(positions)[:, None] * 10000.0 ** (-torch.arange(pairs) / pairs)
    return torch.stack([angle.cos(), angle.sin()], -1)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("ratio", [1, 2])
@pytest.mark.parametrize("heads", [None, 3])
@pytest.mark.parametrize("inverse", [False, True])
def test_rotary(activation: torch.dtype, ratio: int, heads: int | None, inverse: bool) -> None:
    table, rows = rotary_table(64, 8), row_table([0, 1, 7, 30, 63])
    x = random_tensor(0, 5, *([heads] if heads else []), 24, dtype=activation)
    got = OP.rotary(x, rows, table, ratio, inverse)
    turn = torch.view_as_complex(table.double())[rows[:, 1].long() // ratio * ratio]
    turn = (turn.conj() if inverse else turn).view(5, *([1] if heads else []), 8)
    pairs = torch.view_as_complex(x[..., 8:].double().unflatten(-1, (8, 2)).contiguous()) * turn
    want = torch.cat([x[..., :8].double(), torch.view_as_real(pairs).flatten(-2)], -1)
    assert relative_error(got, want) <= (2e-6 if activation == torch.float32 else 4e-3)
    assert_same_bits(got[..., :8], x[..., :8], "dimensions without rotation")
    assert_fake_matches(OPS["rotary"].fake, OP.rotary, x, rows, table, ratio, inverse)
    assert_row_invariant(lambda a, r: OP.rotary(a, r, table, ratio, inverse), [x, rows])


def test_rotary_refuses_a_ratio_without_a_mask() -> None:
    with pytest.raises(ValueError, match="ratio 3"):
        OP.rotary(torch.zeros(1, 16), row_table([0]), rotary_table(4, 8), 3, False)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_combine_experts_adds_in_float32(activation: torch.dtype) -> None:
    routed, shared = random_tensor(0, 5, 32), random_tensor(1, 5, 32, dtype=activation)
    got = OP.combine_experts(routed, shared, activation)
    assert_same_bits(got, (routed + shared.float()).to(activation), "sum")
    assert_fake_matches(OPS["combine_experts"].fake, OP.combine_experts, routed, shared, activation)
    assert_row_invariant(lambda r, s: OP.combine_experts(r, s, activation), [routed, shared])
