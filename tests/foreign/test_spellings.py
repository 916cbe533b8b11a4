"""Habits of users: each spelling is raised to the op, which computes the same, or is refused with a reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from dsv41c.compiler.pass_driver import run_passes
from dsv41c.compiler.pipeline import PIPELINE
from dsv41c.passes.base import Stage
from dsv41c.runtime.plan.errors import Dsv41cError
from tests.passes.graphs import evaluate, program_of, targets

RAISE = [p for p in PIPELINE if p.stage is Stage.RAISE]
T = 12
torch.manual_seed(0)
X, W, WIDE = torch.randn(T, 64), torch.randn(64), torch.randn(T, 2, 64)
FP8 = torch.randn(70, 64).to(torch.float8_e4m3fn)
SCALE = torch.exp2(torch.randint(-3, 3, (3, 2)).float()).to(torch.float8_e8m0fnu)
ROWS = torch.stack([torch.tensor([0, i, 0, 0, T, i, 0, 2 * (i % 2)], dtype=torch.int32) for i in range(T)])
TABLE = torch.stack([torch.cos(torch.randn(32, 8)), torch.sin(torch.randn(32, 8))], -1)
STREAMS, ALPHA, BETA = torch.randn(T, 4, 64), torch.rand(T, 4), torch.rand(T, 4)
GAMMA = torch.rand(T, 4, 4)
EPS = 1e-6


def norm(x: Tensor, w: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * w


def scaled(w: Tensor, s: Tensor) -> Tensor:
    return w.float() * s.float().repeat_interleave(32, 0).repeat_interleave(32, 1)[:70]


def turned(x: Tensor, rows: Tensor, table: Tensor) -> Tensor:
    cos, sin = table[rows[:, 1]].unbind(-1)
    even, odd = x[:, 48:].view(-1, 8, 2).unbind(-1)
    return torch.cat((x[:, :48], torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)), -1)


def turned_in_place(x: Tensor, rows: Tensor, table: Tensor) -> Tensor:
    cos, sin = table[rows[:, 1].long()].unbind(-1)
    out = x.clone()
    even, odd = x[..., 48:][..., 0::2], x[..., 48:][..., 1::2]
    out[..., 48:] = torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)
    return out


def rounded(x: Tensor) -> Tensor:
    groups = x.reshape(-1, 2, 32)
    scale = torch.exp2(torch.ceil(torch.log2(groups.abs().amax(2, keepdim=True).clamp_min(1e-4) / 448)))
    return ((groups / scale).to(torch.float8_e4m3fn).float() * scale).reshape(-1, 64)


HABITS: dict[str, tuple[str, Callable[..., Any], tuple[Tensor, ...]]] = {
    "norm": ("rms_norm", norm, (X, W)),
    "norm: torch's": ("rms_norm", lambda x, w: F.rms_norm(x, (64,), w, EPS), (X, W)),
    "norm: keywords": ("rms_norm", lambda x, w: F.rms_norm(input=x, normalized_shape=[64], weight=w, eps=EPS), (X, W)),
    "norm: cast to the dtype it has": ("rms_norm", lambda x, w: norm(x.to(torch.float32), w).type_as(x), (X, W)),
    "norm: weight first": ("rms_norm", lambda x, w: w * (x * torch.rsqrt((x * x).mean(-1, True) + EPS)), (X, W)),
    "norm: weight with a leading size": ("rms_norm", lambda x, w: norm(x, w[None]), (X, W)),
    "norm: square, negative dim as list": (
        "rms_norm", lambda x, w: w * (x * (torch.mean(torch.square(x), dim=[-1], keepdim=True) + EPS).rsqrt()), (X, W)),
    "norm: quotient by a root": (
        "rms_norm", lambda x, w: x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * w, (X, W)),
    "norm: contiguous and views": ("rms_norm", lambda x, w: norm(x.view(-1, 8, 8).reshape(-1, 64).contiguous(), w),
                                   (X, W)),
    "norm: times one, by one, minus nothing": ("rms_norm", lambda x, w: norm((x * 1 / 1.0) - 0, w), (X, W)),
    "norm: nothing added to squares": (
        "rms_norm", lambda x, w: x * torch.rsqrt((x * x + 0).mean(-1, keepdim=True) + EPS) * w, (X, W)),
    "norm: in place": (
        "rms_norm", lambda x, w: (x * x).mean(-1, keepdim=True).add_(EPS).rsqrt_().mul(x).mul(w), (X, W)),
    "norm: three dimensions": ("rms_norm", norm, (WIDE, W)),
    "linear": ("linear", lambda x, w, s: F.linear(x, scaled(w, s)), (X, FP8, SCALE)),
    "linear: matmul with a transpose": ("linear", lambda x, w, s: x @ scaled(w, s).transpose(0, 1), (X, FP8, SCALE)),
    "linear: permute": ("linear", lambda x, w, s: torch.mm(x, scaled(w, s).permute(1, 0)), (X, FP8, SCALE)),
    "linear: no bias": ("linear", lambda x, w, s: F.linear(x, weight=scaled(w, s), bias=None), (X, FP8, SCALE)),
    "rotary": ("rotary", turned, (X, ROWS, TABLE)),
    "rotary: copied in place": ("rotary", turned_in_place, (X, ROWS, TABLE)),
    "quantize": ("quantize_fp8", rounded, (X,)),
    "collapse": ("mhc_collapse", lambda r, a: (r * a[..., None]).sum(dim=1), (STREAMS, ALPHA)),
    "collapse: einsum": ("mhc_collapse", lambda r, a: torch.einsum("tsh,ts->th", r, a), (STREAMS, ALPHA)),
    "collapse: matmul": ("mhc_collapse", lambda r, a: (a.unsqueeze(1) @ r).squeeze(1), (STREAMS, ALPHA)),
    "collapse: expanded": ("mhc_collapse", lambda r, a: (a[:, :, None].expand_as(r) * r).sum(-2), (STREAMS, ALPHA)),
    "post: matmul": ("mhc_post", lambda y, r, b, g: y[:, None] * b[..., None] + g.mT @ r, (X, STREAMS, BETA, GAMMA)),
    "mean of streams": ("stream_mean", lambda r: r.mean(dim=-2), (STREAMS,)),
    "swiglu: sigmoid by hand": (
        "swiglu", lambda g, u: g.clamp(max=10.0) * torch.sigmoid(g.clamp(max=10.0)) * u.clamp(-10.0, 10.0), (X, X + 1)),
}
# What stays. `x + 0` makes 0.0 of -0.0; the others compute something else.
OTHERS: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "zero added to what may be -0.0": (lambda x, w: norm(x, w) + 0, (X, W)),
    "statistics of norm as a vector": (lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1) + EPS)[:, None] * w, (X, W)),
    "product as a batched one": (lambda x, w: torch.einsum("tk,nk->tn", x, w), (X, torch.randn(70, 64))),
    "gate and up in one matrix": (lambda x: F.silu(x[:, :32].clamp(max=10)) * x[:, 32:].clamp(-10, 10), (X,)),
    "layer norm": (lambda x, w: (x - x.mean(-1, keepdim=True)) * torch.rsqrt(x.var(-1, keepdim=True) + EPS) * w,
                   (X, W)),
    "mean over another dimension": (lambda x, w: x * torch.rsqrt(x.pow(2).mean(0, keepdim=True) + EPS) * w, (X, W)),
    "weight of one number": (lambda x, w: norm(x, w[:1]), (X, W)),
    "groups of 16": (lambda x: ((g := x.reshape(-1, 4, 16)) / (s := torch.exp2(torch.ceil(torch.log2(
        g.abs().amax(2, keepdim=True).clamp_min(1e-4) / 448))))).to(torch.float8_e4m3fn).float().mul(s).view(-1, 64),
        (X,)),
    "blocks of 16": (lambda x, w, s: F.linear(x, w.float() * s.float().repeat_interleave(16, 0).repeat_interleave(
        32, 1)[:48]), (X, FP8[:48], SCALE)),
    "halves instead of pairs": (lambda x, rows, table: turned(torch.cat((x[:, :48], x[:, 48:].view(-1, 2, 8).mT.reshape(
        -1, 16)), -1), rows, table).flip(-1), (X, ROWS, TABLE)),
    "alpha of one stream": (lambda r, a: (r * a[:, :1, None]).sum(1), (STREAMS, ALPHA)),
    "another bound on the gate's sign": (lambda g, u: F.silu(g.clamp(max=10.0)) * u.clamp(-9.0, 10.0), (X, X)),
}


@pytest.mark.parametrize("habit", HABITS)
def test_a_habit_becomes_the_op_and_computes_the_same(habit: str) -> None:
    op, function, examples = HABITS[habit]
    after = run_passes(program_of(function, *examples, rows=T), RAISE).program
    called = [t for t in targets(after) if t != "aten.view"]
    expected = function(*examples)
    (found,) = evaluate(after, *examples)
    assert called == [op]
    assert torch.linalg.norm(found - expected) <= 1e-5 * torch.linalg.norm(expected)


@pytest.mark.parametrize("other", OTHERS)
def test_what_is_not_the_op_is_refused_by_name(other: str) -> None:
    function, examples = OTHERS[other]
    with pytest.raises(Dsv41cError, match="E0202") as caught:
        run_passes(program_of(function, *examples, rows=T), RAISE)
    assert "node " in str(caught.value) and "that no pass of stage raise took" in str(caught.value)



def test_a_program_of_declared_ops_is_passed_on_untouched() -> None:
    program = program_of(lambda x, w: torch.ops.dsv41c.rms_norm(x, w, EPS).view(-1, 8, 8), X, W)
    assert all(step.apply(program).program is program for step in RAISE)
