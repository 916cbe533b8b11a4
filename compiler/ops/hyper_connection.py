"""Ops of the manifold-constrained hyper-connections: collapse, post, stream mean and the mix of a site."""

from __future__ import annotations

import torch
from torch import Tensor

from dsv41c.compiler.ops.dense import PANEL, padded
from dsv41c.compiler.ops.spec import CaptureClass, NativeBody, OpSpec, PadRule


def _one_stream(streams: Tensor, *_: object) -> Tensor:
    return streams.new_empty((streams.shape[0], streams.shape[2]))


def _sum_streams(terms: Tensor) -> Tensor:
    """Sum over dimension 1 in ascending order, one add after the other."""
    total = terms.select(1, 0)
    for stream in range(1, terms.shape[1]):
        total = total + terms.select(1, stream)
    return total


def _mhc_collapse(streams: Tensor, alpha: Tensor) -> Tensor:
    return _sum_streams(streams.to(torch.float32) * alpha.unsqueeze(-1)).to(streams.dtype)


def _stream_mean(streams: Tensor) -> Tensor:
    return _sum_streams(streams.to(torch.float32)).div(streams.shape[1]).to(streams.dtype)


def _mhc_post_fake(y: Tensor, streams: Tensor, beta: Tensor, gamma: Tensor) -> Tensor:
    return torch.empty_like(streams, memory_format=torch.contiguous_format)


def _mhc_post(y: Tensor, streams: Tensor, beta: Tensor, gamma: Tensor) -> Tensor:
    total = y.to(torch.float32).unsqueeze(1) * beta.unsqueeze(-1)
    wide = streams.to(torch.float32)
    for source in range(streams.shape[1]):
        total = total + wide.select(1, source).unsqueeze(1) * gamma.select(1, source).unsqueeze(-1)
    return total.to(streams.dtype)


def _mhc_mix_fake(
    streams: Tensor, fn: Tensor, scale: Tensor, base: Tensor, iterations: int, rms_eps: float, hc_eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    rows, count = streams.shape[0], streams.shape[1]
    shapes = ((rows, count), (rows, count), (rows, count, count))
    alpha, beta, gamma = (streams.new_empty(shape, dtype=torch.float32) for shape in shapes)
    return alpha, beta, gamma


def _mhc_mix(
    streams: Tensor, fn: Tensor, scale: Tensor, base: Tensor, iterations: int, rms_eps: float, hc_eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    rows, count = streams.shape[0], streams.shape[1]
    wide = streams.to(torch.float32).reshape(rows, -1)
    mix = (wide @ fn.T) * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + rms_eps)
    per_channel = scale.repeat_interleave(torch.tensor([count, count, count * count]))
    mix = mix * per_channel + base
    alpha = torch.sigmoid(mix[:, :count]) + hc_eps
    beta = 2 * torch.sigmoid(mix[:, count : 2 * count])
    # Rows are source streams, columns destination streams; the last step normalises the columns.
    gamma = torch.softmax(mix[:, 2 * count :].reshape(rows, count, count), -1) + hc_eps
    gamma = gamma / (gamma.sum(-2, keepdim=True) + hc_eps)
    for _ in range(iterations - 1):
        gamma = gamma / (gamma.sum(-1, keepdim=True) + hc_eps)
        gamma = gamma / (gamma.sum(-2, keepdim=True) + hc_eps)
    return alpha, beta, gamma


def _mhc_mix_scratch(streams: Tensor, *_: object) -> int:
    rows, count, width = streams.shape
    return 4 * (padded(count * width) * (rows + PANEL) + count * (count + 2) * rows)


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        name="mhc_collapse",
        schema="(Tensor streams, Tensor alpha) -> Tensor",
        capture=CaptureClass.CAPTURE, pads=PadRule.ROW, tie_order=None,
        fake=_one_stream, reference=_mhc_collapse,
    ),
    OpSpec(
        name="mhc_post",
        schema="(Tensor y, Tensor streams, Tensor beta, Tensor gamma) -> Tensor",
        capture=CaptureClass.CAPTURE, pads=PadRule.ROW, tie_order=None,
        fake=_mhc_post_fake, reference=_mhc_post,
    ),
    OpSpec(
        name="stream_mean",
        schema="(Tensor streams) -> Tensor",
        capture=CaptureClass.CAPTURE, pads=PadRule.ROW, tie_order=None,
        fake=_one_stream, reference=_stream_mean,
    ),
    OpSpec(
        name="mhc_mix",
        schema="(Tensor streams, Tensor fn, Tensor scale, Tensor base, int iterations, float rms_eps, "
               "float hc_eps) -> (Tensor, Tensor, Tensor)",
        capture=CaptureClass.CAPTURE, pads=PadRule.ROW, tie_order=None,
        fake=_mhc_mix_fake, reference=_mhc_mix, native=NativeBody("mhc_mix", _mhc_mix_scratch),
    ),
)
