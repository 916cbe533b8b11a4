"""How checks on a device compare: relative L2, equal bytes, and the exception of a result outside its bound."""

from __future__ import annotations

import torch


class Mismatch(Exception):
    """A result outside its bound."""


def relative(a: torch.Tensor, b: torch.Tensor) -> float:
    a, b = a.double(), b.double()
    return float((a - b).norm() / b.norm())


def require(holds: bool, what: str) -> None:
    if not holds:
        raise Mismatch(what)


def bytes_of(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous().view(torch.uint8)


def same_bytes(a: torch.Tensor, b: torch.Tensor, what: str) -> None:
    wrong = int((bytes_of(a) != bytes_of(b)).sum())
    require(wrong == 0, f"{what}: {wrong} bytes differ")


def close(a: torch.Tensor, b: torch.Tensor, bound: float, what: str, report: dict[str, float]) -> None:
    error = relative(a, b)
    report[what] = max(report.get(what, 0.0), error)
    require(error <= bound, f"{what}: relative L2 {error:.2e} above {bound:.0e}")  # NaN is never below
