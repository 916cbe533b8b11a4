"""Ops of the mixture of experts: the routing, the routed FP4 experts and the clamped SwiGLU."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from dsv41c.compiler.ops.dense import PANEL
from dsv41c.compiler.ops.quantize import quantize_fp8
from dsv41c.compiler.ops.spec import CaptureClass, NativeBody, OpSpec, PadRule
from dsv41c.runtime.plan.errors import Dsv41cError

FLAGS = 7  # column of the row table
IMAGE = 2  # bit of FLAGS
GROUP = 32  # FP4 elements that share one scale
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)


def _moe_route_fake(
    scores: Tensor, bias: Tensor, bias_vl: Tensor, rows: Tensor, topk: int, routed_scale: float
) -> tuple[Tensor, Tensor]:
    shape = (scores.shape[0], topk)
    return scores.new_empty(shape, dtype=torch.int32), scores.new_empty(shape, dtype=torch.float32)


def _moe_route(
    scores: Tensor, bias: Tensor, bias_vl: Tensor, rows: Tensor, topk: int, routed_scale: float
) -> tuple[Tensor, Tensor]:
    """scores f32 `[T, E]` are the gate's products; the bias moves the choice and not the weights."""
    score = F.softplus(scores, threshold=20.0).sqrt()
    image = (rows[:, FLAGS] & IMAGE).bool().unsqueeze(1)
    key = score + torch.where(image, bias_vl, bias)
    key = torch.where(key.isnan(), float("-inf"), key)  # the worst key, so that every row has valid ids
    expert = key.sort(dim=-1, descending=True, stable=True).indices[:, :topk]
    chosen = score.gather(1, expert)
    return expert.to(torch.int32), routed_scale * chosen / (chosen.sum(-1, keepdim=True) + 1e-20)


def _moe_route_scratch(scores: Tensor, *_: object) -> int:
    return 4 * scores.shape[1]


def expand_fp4(weight: Tensor, scale: Tensor) -> Tensor:
    """Packed e2m1 [..., K/2] with e8m0 scales [..., K/32] as float32; the low nibble is the even column."""
    codes = weight.view(torch.uint8).to(torch.int64)
    grid = torch.tensor(_E2M1, dtype=torch.float32, device=weight.device)
    values = grid[torch.stack([codes & 15, codes >> 4], -1)].flatten(-2)
    return values * scale.to(torch.float32).repeat_interleave(GROUP, -1)


def _moe_experts_fake(
    x: Tensor, expert: Tensor, weight: Tensor, w1: Tensor, w1_scale: Tensor, w3: Tensor, w3_scale: Tensor,
    w2: Tensor, w2_scale: Tensor, limit: float, quantize: bool,
) -> Tensor:
    return torch.empty_like(x, dtype=torch.float32, memory_format=torch.contiguous_format)


def _moe_experts(
    x: Tensor, expert: Tensor, weight: Tensor, w1: Tensor, w1_scale: Tensor, w3: Tensor, w3_scale: Tensor,
    w2: Tensor, w2_scale: Tensor, limit: float, quantize: bool,
) -> Tensor:
    out = torch.zeros_like(x, dtype=torch.float32)
    wide = x.to(torch.float32)
    for choice in range(expert.shape[1]):  # the outer loop keeps each row's sum in the order of its choices
        ids = expert[:, choice]
        for e in sorted(set(ids[(ids >= 0) & (ids < w1.shape[0])].tolist())):
            at = (ids == e).nonzero()[:, 0]
            gate = wide[at] @ expand_fp4(w1[e], w1_scale[e]).T
            up = wide[at] @ expand_fp4(w3[e], w3_scale[e]).T
            # The routing weight comes before the rounding and the quantizer.
            inner = (_clamped_swiglu(gate, up, limit) * weight[at, choice, None]).to(x.dtype)
            inner = quantize_fp8(inner) if quantize else inner
            out[at] += inner.to(torch.float32) @ expand_fp4(w2[e], w2_scale[e]).T
    return out


def _moe_experts_scratch(x: Tensor, expert: Tensor, weight: Tensor, w1: Tensor, *_: object) -> int:
    rows, width = x.shape
    topk, inner = expert.shape[1], w1.shape[1]
    floats = rows * width + PANEL * max(width, inner) + rows * topk * (inner + width)
    return 8 * rows * topk + 4 * floats


def _require_one_rank(op: str, world_size: int) -> None:
    if world_size != 1:
        raise Dsv41cError("DSV41C-E0201", f"body of {op}", found=f"world size {world_size}", needed="world size 1",
                          do="compile for one rank: there is no communicator yet")


def _expert_dispatch_fake(x: Tensor, expert: Tensor, weight: Tensor, world_size: int) -> tuple[Tensor, Tensor, Tensor]:
    _require_one_rank("expert_dispatch", world_size)
    empty = [torch.empty_like(t, memory_format=torch.contiguous_format) for t in (x, expert, weight)]
    return empty[0], empty[1], empty[2]


def _expert_dispatch(x: Tensor, expert: Tensor, weight: Tensor, world_size: int) -> tuple[Tensor, Tensor, Tensor]:
    """The rows whose experts this rank holds: with one rank, copies of all of them."""
    _require_one_rank("expert_dispatch", world_size)
    return x.clone(), expert.clone(), weight.clone()


def _expert_combine_fake(routed: Tensor, world_size: int) -> Tensor:
    _require_one_rank("expert_combine", world_size)
    return torch.empty_like(routed, memory_format=torch.contiguous_format)


def _expert_combine(routed: Tensor, world_size: int) -> Tensor:
    """The sums of this rank's rows, back from where they were computed: with one rank, a copy."""
    _require_one_rank("expert_combine", world_size)
    return routed.clone()


def _clamped_swiglu(gate: Tensor, up: Tensor, limit: float) -> Tensor:
    return F.silu(gate.clamp(max=limit)) * up.clamp(-limit, limit)


def _swiglu_fake(gate: Tensor, up: Tensor, limit: float, dtype: torch.dtype) -> Tensor:
    return torch.empty_like(gate, dtype=dtype, memory_format=torch.contiguous_format)


def _swiglu(gate: Tensor, up: Tensor, limit: float, dtype: torch.dtype) -> Tensor:
    return _clamped_swiglu(gate, up, limit).to(dtype)


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        name="moe_route",
        schema="(Tensor scores, Tensor bias, Tensor bias_vl, Tensor rows, int topk, float routed_scale) "
               "-> (Tensor, Tensor)",
        capture=CaptureClass.CAPTURE, pads=PadRule.ROW, tie_order="lower expert id first",
        fake=_moe_route_fake, reference=_moe_route, native=NativeBody("moe_route", _moe_route_scratch),
    ),
    OpSpec(
        name="moe_experts",
        schema="(Tensor x, Tensor expert, Tensor weight, Tensor w1, Tensor w1_scale, Tensor w3, "
               "Tensor w3_scale, Tensor w2, Tensor w2_scale, float limit, bool quantize) -> Tensor",
        capture=CaptureClass.CAPTURE, pads=PadRule.ROW, tie_order="choices are summed in the order given",
        fake=_moe_experts_fake, reference=_moe_experts,
        native=NativeBody("moe_experts", _moe_experts_scratch),
    ),
    OpSpec(
        name="expert_dispatch",
        schema="(Tensor x, Tensor expert, Tensor weight, int world_size) -> (Tensor, Tensor, Tensor)",
        capture=CaptureClass.CAPTURE, pads=PadRule.ROW, tie_order=None,
        fake=_expert_dispatch_fake, reference=_expert_dispatch,
    ),
    OpSpec(
        name="expert_combine",
        schema="(Tensor routed, int world_size) -> Tensor",
        capture=CaptureClass.CAPTURE, pads=PadRule.ROW, tie_order=None,
        fake=_expert_combine_fake, reference=_expert_combine,
    ),
    OpSpec(
        name="swiglu",
        schema="(Tensor gate, Tensor up, float limit, ScalarType dtype) -> Tensor",
        capture=CaptureClass.CAPTURE, pads=PadRule.ROW, tie_order=None,
        fake=_swiglu_fake, reference=_swiglu, native=NativeBody("swiglu", None),
    ),
)
