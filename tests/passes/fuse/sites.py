"""The spellings of a mHC site that the three mHC passes take, and their tensors."""

from __future__ import annotations

from typing import Any

import torch

from tests.passes.programs import F32, OPS, Values, normal

EPS, HC_EPS, ITERS = 1e-20, 1e-6, 5


def site_values(dtype: torch.dtype = F32, width: int = 64, streams: int = 4) -> Values:
    rows, mix = 5, streams * (streams + 2)
    return {"y": normal(1, rows, width, dtype=dtype), "streams": normal(2, rows, streams, width, dtype=dtype),
            "beta": normal(3, rows, streams), "gamma": normal(4, rows, streams, streams),
            "alpha": normal(5, rows, streams), "norm": normal(6, width), "fn": normal(7, mix, streams * width),
            "scale": normal(8, 3), "base": normal(9, mix)}


def mix(trunk: torch.Tensor, v: dict[str, torch.Tensor], eps: float = EPS) -> Any:
    return OPS.mhc_mix(trunk, v["fn"], v["scale"], v["base"], ITERS, eps, HC_EPS)


def normed(trunk: torch.Tensor, v: dict[str, torch.Tensor]) -> torch.Tensor:
    return OPS.rms_norm(OPS.mhc_collapse(trunk, v["alpha"]), v["norm"], EPS)


def post(v: dict[str, torch.Tensor]) -> torch.Tensor:
    return OPS.mhc_post(v["y"], v["streams"], v["beta"], v["gamma"])


def site(cast: bool) -> Any:
    """post, collapse, norm, mix and cast; the norm is read outside as well."""
    def body(**v: torch.Tensor) -> list[torch.Tensor]:
        trunk = post(v)
        x, mixed = normed(trunk, v), mix(trunk, v)
        return [trunk, *mixed, x.view(-1), *([OPS.quantize_fp8(x)] if cast else [])]
    return body
