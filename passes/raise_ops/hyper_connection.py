"""raise_mhc_*: collapse, post and mix of the hyper-connections' streams, and their mean.

Bits may differ: the ops add streams one after the other and sum the mix in lanes, torch in an order of its own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx

from dsv41c.passes.engine.raising import Raising
from dsv41c.passes.engine.spelling import Spelling
from dsv41c.passes.raise_ops.examples import FLOATS, rows, weight

_S, _H = 3, 37


def _stream_examples() -> Iterator[tuple[Any, ...]]:
    for dtype in FLOATS:
        yield (rows(_S, _H, dtype=dtype),)


def _collapse_examples() -> Iterator[tuple[Any, ...]]:
    for dtype in FLOATS:
        yield rows(_S, _H, dtype=dtype), rows(_S)


def _post_examples() -> Iterator[tuple[Any, ...]]:
    for dtype in FLOATS:
        yield rows(_H, dtype=dtype), rows(_S, _H, dtype=dtype), rows(_S), rows(_S, _S)


def _collapse(streams: Tensor, alpha: Tensor) -> Tensor:
    return (streams.float() * alpha.unsqueeze(-1)).sum(1).to(streams.dtype)


def _collapse_product(streams: Tensor, alpha: Tensor) -> Tensor:
    return torch.einsum("tsh,ts->th", streams.float(), alpha).to(streams.dtype)


def _collapse_bmm(streams: Tensor, alpha: Tensor) -> Tensor:
    return torch.bmm(alpha.unsqueeze(1), streams.float()).squeeze(1).to(streams.dtype)


def _mean(streams: Tensor) -> Tensor:
    return streams.float().mean(1).to(streams.dtype)



def _post(y: Tensor, streams: Tensor, beta: Tensor, gamma: Tensor) -> Tensor:
    mixed = (gamma.unsqueeze(-1) * streams.float().unsqueeze(2)).sum(1)
    return (y.float().unsqueeze(1) * beta.unsqueeze(-1) + mixed).to(streams.dtype)


def _post_product(y: Tensor, streams: Tensor, beta: Tensor, gamma: Tensor) -> Tensor:
    mixed = gamma.transpose(1, 2) @ streams.float()
    return (y.float().unsqueeze(1) * beta.unsqueeze(-1) + mixed).to(streams.dtype)


def _post_einsum(y: Tensor, streams: Tensor, beta: Tensor, gamma: Tensor) -> Tensor:
    mixed = torch.einsum("tsd,tsh->tdh", gamma, streams.float())
    return (y.float().unsqueeze(1) * beta.unsqueeze(-1) + mixed).to(streams.dtype)


def _mix(streams: Tensor, fn: Tensor, scale: Tensor, base: Tensor, iterations: int, rms_eps: float,
         hc_eps: float) -> tuple[Tensor, Tensor, Tensor]:
    n = streams.shape[1]
    wide = streams.flatten(1).float()
    mix = F.linear(wide, fn) * torch.rsqrt(wide.square().mean(-1, keepdim=True) + rms_eps)
    alpha = torch.sigmoid(mix[:, :n] * scale[0] + base[:n]) + hc_eps
    beta = 2 * torch.sigmoid(mix[:, n:2 * n] * scale[1] + base[n:2 * n])
    gamma = (mix[:, 2 * n:] * scale[2] + base[2 * n:]).view(-1, n, n).softmax(-1) + hc_eps
    gamma = gamma / (gamma.sum(-2, keepdim=True) + hc_eps)
    for _ in range(iterations - 1):
        gamma = gamma / (gamma.sum(-1, keepdim=True) + hc_eps)
        gamma = gamma / (gamma.sum(-2, keepdim=True) + hc_eps)
    return alpha, beta, gamma


@functools.cache
def _mix_spelling(iterations: int) -> Spelling:
    """Iterations are unrolled, so that each number of them has its own pattern."""
    def examples() -> Iterator[tuple[Any, ...]]:
        for dtype in FLOATS:
            width = _S * (_S + 2)
            yield (rows(_S, _H, dtype=dtype), weight(width, _S * _H), weight(3), weight(width), None, 0.0173,
                   0.0291)

    def spelled(streams: Tensor, fn: Tensor, scale: Tensor, base: Tensor, _: int, rms_eps: float,
                hc_eps: float) -> tuple[Tensor, Tensor, Tensor]:
        return _mix(streams, fn, scale, base, iterations, rms_eps, hc_eps)

    return Spelling(spelled, "aten._softmax.default", examples)


def count_iterations(anchor: fx.Node) -> int:
    """Half of the quotients that follow one another behind a softmax, the single first one counted as two."""
    quotients, value = 0, anchor
    while True:
        readers: list[fx.Node] = list(value.users)
        following = [n for n in readers if n.target is torch.ops.aten.div.Tensor and n.args[0] is value]
        if not following and quotients == 0:
            following = [n for r in readers for n in r.users if n.target is torch.ops.aten.div.Tensor
                         and n.args[0] is r]
        if not following:
            return (quotients + 1) // 2
        value, quotients = following[0], quotients + 1


def _spelling(function: Callable[..., Any], anchor: str, examples: Callable[[], Iterator[tuple[Any, ...]]]) -> Spelling:
    return Spelling(function, f"aten.{anchor}", examples)


@dataclass(frozen=True)
class RaiseMhcMix(Raising):
    """The mix of a site: norm, product, sigmoids, softmax and Sinkhorn iterations."""

    name = "raise_mhc_mix"
    op = "mhc_mix"
    shapes = {"streams": "T S H", "fn": "M SH", "scale": "three", "base": "M"}
    spellings = (_mix_spelling(1),)

    def chosen(self, anchor: fx.Node) -> tuple[Spelling, ...]:
        if anchor.target is not torch.ops.aten._softmax.default:
            return ()
        return (_mix_spelling(max(1, count_iterations(anchor))),)

    def solve(self, found: Any, anchor: fx.Node) -> dict[str, Any]:
        return {"iterations": max(1, count_iterations(anchor))}


@dataclass(frozen=True)
class RaiseMhcPost(Raising):
    """The streams behind a sublayer: its output by beta and the streams by gamma."""

    name = "raise_mhc_post"
    op = "mhc_post"
    shapes = {"y": "T H", "streams": "T S H", "beta": "T S", "gamma": "T S S"}
    spellings = (_spelling(_post, "sum.dim_IntList", _post_examples),
                 _spelling(_post_product, "bmm.default", _post_examples),
                 _spelling(_post_einsum, "bmm.default", _post_examples))


@dataclass(frozen=True)
class RaiseMhcCollapse(Raising):
    """The sum of the streams by alpha."""

    name = "raise_mhc_collapse"
    op = "mhc_collapse"
    shapes = {"streams": "T S H", "alpha": "T S"}
    spellings = (_spelling(_collapse, "sum.dim_IntList", _collapse_examples),
                 _spelling(_collapse_bmm, "bmm.default", _collapse_examples),
                 _spelling(_collapse_product, "bmm.default", _collapse_examples))


@dataclass(frozen=True)
class RaiseStreamMean(Raising):
    """The mean of the streams."""

    name = "raise_stream_mean"
    op = "stream_mean"
    shapes = {"streams": "T S H"}
    spellings = (_spelling(_mean, "mean.dim", _stream_examples),)
