"""What the normal form asks of a node: shape, dtype, arguments, constants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import fx

from dsv41c.compiler.program import argument

A = torch.ops.aten
_NEVER_NEGATIVE = (A.abs.default, A.sigmoid.default, A._softmax.default, A.exp.default, A.sqrt.default, A.rsqrt.default)


def args_of(node: fx.Node) -> tuple[Any, ...]:
    """The positional arguments."""
    return node.args


def attribute(node: fx.Node, name: str) -> Any:
    """An argument by its schema name."""
    return argument(node, name)


def shape(node: fx.Node) -> list[Any]:
    return list(node.meta["val"].shape)


def same_shape(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return len(one) == len(other) and all(map(equal, one, other))


def equal(one: Any, other: Any) -> bool:
    """Of symbols by name: a comparison would bind them."""
    return one == other if isinstance(one, int) and isinstance(other, int) else str(one) == str(other)


def input_of(node: fx.Node) -> fx.Node:
    source = node.args[0]
    assert isinstance(source, fx.Node)
    return source


def first_of(node: fx.Node) -> fx.Node:
    return node.all_input_nodes[0]


def dtype_of(node: fx.Node) -> torch.dtype:
    dtype: torch.dtype = node.meta["val"].dtype
    return dtype


def widens(narrow: torch.dtype, wide: torch.dtype) -> bool:
    return (narrow, wide) in ((torch.bfloat16, torch.float32), (torch.int32, torch.int64))


def is_narrower(one: fx.Node, other: fx.Node) -> bool:
    return dtype_of(one).itemsize < dtype_of(other).itemsize and dtype_of(other).is_floating_point


def bound(index: int | None, size: int, default: int) -> int:
    if index is None:
        return default
    return max(0, min(index + size if index < 0 else index, size))


def never_negative(node: fx.Node) -> bool:
    if node.target in (A.view.default, A.slice.Tensor, A.amax.default, A.sum.dim_IntList, A.mean.dim):
        return never_negative(input_of(node))
    is_square = node.target is A.mul.Tensor and node.args[0] is node.args[1]
    return is_square or node.target in _NEVER_NEGATIVE


def constant_of(value: Any) -> Any:
    """The number of a constant without dimensions, or of a literal; None for a value."""
    if isinstance(value, fx.Node):
        return value.args[0] if value.target is A.scalar_tensor.default else None
    return value


def number(value: Any, node: fx.Node) -> Any:
    """A number beside floats as the shortest decimal that is the same float32."""
    if value is None or isinstance(value, bool) or not dtype_of(first_of(node)).is_floating_point:
        return value
    value = float(value)
    short = float(str(np.float32(value)))
    return short if float(np.float32(value)) == value else value
