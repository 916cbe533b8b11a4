"""KernelTable: one plan kernel per distinct (op, static attributes, tensor shapes in rows), built on first use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from dsv41c.compiler.affine import PROBE_ROWS, fit
from dsv41c.compiler.composite import build_composite
from dsv41c.compiler.ops.spec import OpSpec
from dsv41c.runtime.plan import schema
from dsv41c.runtime.plan.expr import Expr, evaluate


@dataclass(frozen=True)
class TensorShape:
    """A tensor argument: sizes over the symbol `rows`."""

    dtype: torch.dtype
    sizes: tuple[Expr, ...]

    def meta(self, rows: int) -> torch.Tensor:
        sizes = [evaluate(size, {schema.ROWS: rows}) for size in self.sizes]
        return torch.empty(sizes, dtype=self.dtype, device="meta")


class KernelTable:
    """Kernels in order of first use; `kernels` goes into the plan as it is."""

    def __init__(self, ops: Mapping[str, OpSpec]) -> None:
        self._ops = ops
        self._index: dict[object, int] = {}
        self.kernels: list[schema.Kernel] = []

    def find(self, op: str, args: Sequence[Any]) -> int:
        """Index of the kernel for these arguments: TensorShape, None or a plain attribute each."""
        key = (op, tuple(_hashable(a) for a in args))
        if key not in self._index:
            self.kernels.append(self._build(self._ops[op], args))
            self._index[key] = len(self.kernels) - 1
        return self._index[key]

    def _build(self, spec: OpSpec, args: Sequence[Any]) -> schema.Kernel:
        def make_args(rows: int) -> list[Any]:
            return [a.meta(rows) if isinstance(a, TensorShape) else a for a in args]

        name = f"dsv41c::{spec.name}"
        declared = spec.parsed().arguments
        attributes = {d.name: attribute_tag(a) for d, a in zip(declared, args, strict=True)
                      if "Tensor" not in str(d.type)}
        if spec.native is None:
            built = build_composite(name, spec.reference, make_args)
            return schema.Kernel(name, attributes, built.body, built.scratch_bytes)
        scratch: Expr = 0
        if spec.native.scratch_bytes is not None:
            needed = spec.native.scratch_bytes
            scratch = fit([int(needed(*make_args(rows))) for rows in PROBE_ROWS], schema.ROWS)
        return schema.Kernel(name, attributes, schema.NativeBody(spec.native.entry), scratch)


def attribute_tag(value: Any) -> schema.Attribute:
    """An attribute as the plan writes it."""
    if isinstance(value, float):
        return schema.FloatTag.of(value)
    if isinstance(value, torch.dtype):
        return schema.DtypeTag(str(value).removeprefix("torch."))
    if isinstance(value, bool | int | str):
        return value
    raise TypeError(f"attribute {value!r} of type {type(value).__name__}")


def _hashable(argument: Any) -> object:
    """Floats by their bits: 1.0 and 1 and True would be one key."""
    if isinstance(argument, float):
        return ("float", argument.hex())
    return (type(argument).__name__, argument)
