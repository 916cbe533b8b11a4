"""Mixture-of-experts ops: routing rules, experts against a plain sum, idle experts, row laws."""

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
IMAGE = 2


def random_tensor(seed: int, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def row_table(flags: list[int]) -> torch.Tensor:
    rows = torch.zeros(len(flags), 8, dtype=torch.int32)
    rows[:, 7] = torch.tensor(flags)
    return rows


def fp4_weight(seed: int, experts: int, rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(-128, 128, (experts, rows, columns // 2), generator=generator, dtype=torch.int8)
    scale = torch.randint(121, 126, (experts, rows, columns // 32), generator=generator, dtype=torch.uint8)
    return codes, scale.view(torch.float8_e8m0fnu)


def expert_weights(seed: int, experts: int, width: int, inner: int) -> tuple[torch.Tensor, ...]:
    """w1, w1_scale, w3, w3_scale, w2, w2_scale."""
    return (*fp4_weight(seed, experts, inner, width), *fp4_weight(seed + 1, experts, inner, width),
            *fp4_weight(seed + 2, experts, width, inner))


def plain_experts(
    x: torch.Tensor, expert: torch.Tensor, weight: torch.Tensor, *weights: torch.Tensor
) -> torch.Tensor:
    """One row and one choice at a time, without the quantizer, codes looked up one by one."""
    grid = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    value = torch.tensor([*grid, *[-g for g in grid]], dtype=torch.float64)

    def dense(codes: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        unsigned = codes.view(torch.uint8).long()
        out = torch.empty(codes.shape[0], codes.shape[1] * 2, dtype=torch.float64)
        out[:, 0::2], out[:, 1::2] = value[unsigned % 16], value[unsigned // 16]
        return out * scale.double().repeat_interleave(32, 1)

    w1, s1, w3, s3, w2, s2 = weights
    out = torch.zeros(x.shape, dtype=torch.float64)
    for t in range(x.shape[0]):
        for e, routed in zip(expert[t].tolist(), weight[t].double(), strict=True):
            if e >= 0:
                gate, up = dense(w1[e], s1[e]) @ x[t].double(), dense(w3[e], s3[e]) @ x[t].double()
                inner = torch.nn.functional.silu(gate.clamp(max=10)) * up.clamp(-10, 10) * routed
                out[t] += dense(w2[e], s2[e]) @ inner
    return out


# --- gate -------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**31), rows=st.integers(1, 9), width=st.integers(1, 80),
       experts=st.integers(3, 40), topk=st.integers(1, 3), dtype=st.sampled_from(ACTIVATIONS))
def test_gate_agrees_with_reference(
    seed: int, rows: int, width: int, experts: int, topk: int, dtype: torch.dtype
) -> None:
    weight = random_tensor(seed + 1, experts, width, dtype=torch.bfloat16)
    bias, bias_vl = random_tensor(seed + 2, experts), random_tensor(seed + 3, experts)
    table = row_table([IMAGE * (t % 2) for t in range(rows)])
    arguments = (random_tensor(seed, rows, width, dtype=dtype), weight, bias, bias_vl, table, topk, 1.5)
    got, want = OP.mega_gate(*arguments), OPS["mega_gate"].reference(*arguments)
    assert torch.equal(got[0], want[0])
    assert relative_error(got[1], want[1]) <= 2e-6
    assert_fake_matches(OPS["mega_gate"].fake, OP.mega_gate, *arguments)
    scores = OP.linear(*arguments[:2], None, torch.float32)
    assert_fake_matches(OPS["moe_route"].fake, OP.moe_route, scores, *arguments[2:])


def test_gate_prefers_the_lower_id_among_equals() -> None:
    x, weight = torch.ones(2, 16), torch.zeros(9, 16)
    weight[4], weight[7] = 1.0, 1.0
    zero = torch.zeros(9)
    expert, share = OP.mega_gate(x, weight, zero, zero, row_table([0, 0]), 4, 1.5)
    assert expert.tolist() == [[4, 7, 0, 1]] * 2
    torch.testing.assert_close(share.sum(-1), torch.full((2,), 1.5))


def test_gate_bias_moves_the_choice_and_not_the_weights() -> None:
    x, weight = random_tensor(0, 2, 16), torch.zeros(8, 16)
    text, image = torch.zeros(8), torch.zeros(8)
    text[[2, 5]], image[[1, 6]] = torch.tensor([3.0, 4.0]), torch.tensor([3.0, 4.0])
    expert, share = OP.mega_gate(x, weight, text, image, row_table([0, IMAGE]), 2, 1.5)
    assert expert.tolist() == [[5, 2], [6, 1]]
    torch.testing.assert_close(share, torch.full((2, 2), 0.75))


def test_gate_of_large_and_small_logits_is_finite() -> None:
    weight = torch.tensor([[200.0], [30.0], [19.0], [-100.0]])
    zero = torch.zeros(4)
    expert, share = OP.mega_gate(torch.ones(1, 1), weight, zero, zero, row_table([0]), 4, 1.0)
    score = torch.nn.functional.softplus(weight.flatten().double()).sqrt()
    assert expert.tolist() == [[0, 1, 2, 3]]
    torch.testing.assert_close(share[0].double(), score / score.sum(), rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), float("-inf")])
def test_gate_gives_distinct_valid_ids_for_any_row(poison: float) -> None:
    x = random_tensor(0, 3, 32)
    x[1] = poison
    weight, zero = random_tensor(1, 8, 32), torch.zeros(8)
    expert, _ = OP.mega_gate(x, weight, zero, zero, row_table([0, 0, 0]), 3, 1.5)
    assert all(len(set(row)) == 3 and set(row) <= set(range(8)) for row in expert.tolist())


@pytest.mark.parametrize("dtype", ACTIVATIONS)
@pytest.mark.parametrize("width", [32, 45])
def test_gate_rows_stand_alone(dtype: torch.dtype, width: int) -> None:
    weight, bias, bias_vl = random_tensor(1, 21, width), random_tensor(2, 21), random_tensor(3, 21)
    rows = [random_tensor(0, 6, width, dtype=dtype), row_table([0, IMAGE, 0, 0, IMAGE, 1])]
    assert_row_invariant(lambda x, table: OP.mega_gate(x, weight, bias, bias_vl, table, 4, 1.5), rows)


# --- experts ----------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**31), rows=st.integers(1, 9), experts=st.integers(1, 6),
       topk=st.integers(1, 3), width=st.sampled_from([32, 64, 96]), inner=st.sampled_from([32, 64]),
       dtype=st.sampled_from(ACTIVATIONS), quantize=st.booleans())
def test_experts_agree_with_reference(
    seed: int, rows: int, experts: int, topk: int, width: int, inner: int, dtype: torch.dtype, quantize: bool
) -> None:
    generator = torch.Generator().manual_seed(seed)
    expert = torch.randint(-1, experts, (rows, topk), generator=generator, dtype=torch.int32)
    arguments = (random_tensor(seed, rows, width, dtype=dtype), expert, random_tensor(seed + 1, rows, topk),
                 *expert_weights(seed + 2, experts, width, inner), 10.0, quantize)
    got, want = OP.moe_experts(*arguments), OPS["moe_experts"].reference(*arguments)
    # Where the activation is rounded, its last bit in float32 may fall to another bfloat16 or e4m3 neighbour.
    assert relative_error(got, want) <= (2e-6 if dtype == torch.float32 and not quantize else 2e-2)
    assert_fake_matches(OPS["moe_experts"].fake, OP.moe_experts, *arguments)


def test_experts_equal_a_plain_sum() -> None:
    weights = expert_weights(0, 5, 64, 96)
    expert = torch.tensor([[0, 1], [4, -1], [-1, -1], [1, 1], [3, 0]], dtype=torch.int32)
    x, weight = random_tensor(1, 5, 64), random_tensor(2, 5, 2)
    got = OP.moe_experts(x, expert, weight, *weights, 10.0, False)
    assert relative_error(got, plain_experts(x, expert, weight, *weights)) <= 2e-6
    assert torch.equal(got[2], torch.zeros(64))


def test_experts_without_rows_change_nothing() -> None:
    """C35: everything goes to two experts; the idle ones between them hold NaN and are never touched."""
    w1, s1, w3, s3, w2, s2 = expert_weights(0, 6, 32, 32)
    poisoned = [s.clone() for s in (s1, s3, s2)]
    for scale in poisoned:
        scale.view(torch.uint8)[[0, 2, 3, 5]] = 255
    expert = torch.tensor([[1, 4], [4, 1], [1, 4]], dtype=torch.int32)
    x, weight = random_tensor(1, 3, 32), random_tensor(2, 3, 2)
    got = OP.moe_experts(x, expert, weight, w1, poisoned[0], w3, poisoned[1], w2, poisoned[2], 10.0, True)
    want = OP.moe_experts(x, expert, weight, w1, s1, w3, s3, w2, s2, 10.0, True)
    assert_same_bits(got, want, "idle experts")


def test_gate_that_sends_all_rows_to_two_experts() -> None:
    """C35: a bias concentrates the routing; then a batch of one leaves most experts empty."""
    weights = expert_weights(0, 8, 32, 32)
    bias = torch.zeros(8)
    bias[[2, 6]] = 100.0
    x, gate = random_tensor(1, 5, 32), random_tensor(2, 8, 32)
    for rows in (5, 1):
        expert, share = OP.mega_gate(x[:rows], gate, bias, bias, row_table([0] * rows), 2, 1.5)
        assert set(expert.flatten().tolist()) == {2, 6}
        got = OP.moe_experts(x[:rows], expert, share, *weights, 10.0, False)
        assert relative_error(got, plain_experts(x[:rows], expert, share, *weights)) <= 2e-6


@pytest.mark.parametrize("dtype", ACTIVATIONS)
@pytest.mark.parametrize("quantize", [False, True])
def test_expert_rows_stand_alone(dtype: torch.dtype, quantize: bool) -> None:
    weights = expert_weights(0, 4, 64, 32)
    expert = torch.randint(-1, 4, (7, 3), generator=torch.Generator().manual_seed(1), dtype=torch.int32)
    rows = [random_tensor(2, 7, 64, dtype=dtype), expert, random_tensor(3, 7, 3)]
    assert_row_invariant(lambda *a: OP.moe_experts(*a, *weights, 10.0, quantize), rows)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**31), quantize=st.booleans())
def test_rounding_of_the_activation_is_that_of_quantize_fp8(seed: int, quantize: bool) -> None:
    """An identity for w2 shows the activation itself: rounded to bfloat16, then through the quantizer."""
    w1, s1, w3, s3, _, _ = expert_weights(seed, 1, 32, 32)
    identity = torch.zeros(32, 32, dtype=torch.uint8)
    identity[range(32), range(32)] = 2  # the code of 1.0
    w2 = (identity[:, 0::2] | identity[:, 1::2] << 4).view(torch.int8).unsqueeze(0)
    one = torch.full((1, 32, 1), 127, dtype=torch.uint8).view(torch.float8_e8m0fnu)
    x, weight = random_tensor(seed, 2, 32, dtype=torch.bfloat16), random_tensor(seed + 1, 2, 1)
    expert = torch.zeros(2, 1, dtype=torch.int32)
    rounded = OP.moe_experts(x, expert, weight, w1, s1, w3, s3, w2, one, 10.0, False)
    assert torch.equal(rounded, rounded.bfloat16().float())
    got = OP.moe_experts(x, expert, weight, w1, s1, w3, s3, w2, one, 10.0, True)
    assert torch.equal(got, OP.quantize_fp8(rounded))


# --- swiglu -----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ACTIVATIONS)
def test_swiglu(dtype: torch.dtype) -> None:
    gate, up = random_tensor(0, 6, 50) * 8, random_tensor(1, 6, 50) * 8
    gate[0, :4] = torch.tensor([1e30, -1e30, 10.0, -200.0])
    got, want = OP.swiglu(gate, up, 10.0, dtype), OPS["swiglu"].reference(gate, up, 10.0, dtype)
    assert relative_error(got, want) <= (2e-6 if dtype == torch.float32 else 4e-3)
    assert_fake_matches(OPS["swiglu"].fake, OP.swiglu, gate, up, 10.0, dtype)
    assert_row_invariant(lambda g, u: OP.swiglu(g, u, 10.0, dtype), [gate, up])
