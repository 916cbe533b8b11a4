"""Constraints that several fused ops share. Arguments are named by their position in the op's schema."""

from __future__ import annotations

from typing import Any

from dsv41c.compiler.ops.packed import DTYPE as PACKED
from dsv41c.compiler.ops.spec import Constraint

CAST_GROUP = 32  # elements that share one scale of quantize_fp8
STREAMS = 4  # residual streams of a mHC site


def same_dtype(first: int, second: int, names: str, or_packed: bool = False) -> Constraint:
    """Two tensor arguments of one dtype; `or_packed`: the second may be packed state."""
    def check(*args: Any) -> str | None:
        found = args[first].dtype, args[second].dtype
        fits = found[0] == found[1] or or_packed and found[1] == PACKED
        return None if fits else f"{names} are {_short(found[0])} and {_short(found[1])}"
    return Constraint(f"{names} have one dtype", check)


def four_streams(argument: int) -> Constraint:
    """Residual streams `[T, 4, H]`."""
    def check(*args: Any) -> str | None:
        shape = args[argument].shape
        found = shape[1] if len(shape) == 3 else 0
        return None if found == STREAMS else f"{found} streams, not {STREAMS}"
    return Constraint(f"{STREAMS} streams", check)


def whole_groups(argument: int, cast: int, dim: int = -1) -> Constraint:
    """Size `dim` of a tensor is what is cast when the flag at `cast` is set."""
    def check(*args: Any) -> str | None:
        return groups_reason(args[argument].shape[dim]) if args[cast] else None
    return Constraint(f"a cast takes whole groups of {CAST_GROUP}", check)


def groups_reason(width: int) -> str | None:
    return None if width % CAST_GROUP == 0 else f"a cast of {width} columns, not whole groups of {CAST_GROUP}"


def _short(dtype: object) -> str:
    return str(dtype).removeprefix("torch.")
