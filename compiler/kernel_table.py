"""KernelTable: one plan kernel per distinct (op, static attributes, tensor shapes in rows), built on first use.

On the CPU a body is native or an ATen composite; on a CUDA target it is CUDA or, where no kernel exists yet, the
composite again. A fused op without a kernel of its own is the sequence of its primitives on every target.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from dsv41c.compiler.affine import PROBE_ROWS, fit
from dsv41c.compiler.composite import build_composite
from dsv41c.compiler.cuda_bodies import CudaBodies
from dsv41c.compiler.ops.spec import OpSpec
from dsv41c.compiler.sequence import build_sequence
from dsv41c.compiler.tensor_shape import TensorShape
from dsv41c.runtime.plan import schema
from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.runtime.plan.expr import Expr


class KernelTable:
    """Kernels in order of first use; `kernels` goes into the plan as it is."""

    def __init__(self, ops: Mapping[str, OpSpec], cuda: CudaBodies | None = None) -> None:
        self._ops = ops
        self._cuda = cuda
        self._index: dict[object, int] = {}
        self.kernels: list[schema.Kernel] = []

    def find(self, op: str, args: Sequence[Any]) -> int:
        """Index of the kernel for these arguments: TensorShape, a list of them, None or a plain attribute each."""
        key = (op, tuple(_hashable(a) for a in args))
        if key not in self._index:
            self.kernels.append(self._build(self._ops[op], args))
            self._index[key] = len(self.kernels) - 1
        return self._index[key]

    def _build(self, spec: OpSpec, args: Sequence[Any]) -> schema.Kernel:
        def make_args(rows: int) -> list[Any]:
            return [_meta(a, rows) for a in args]

        name = f"dsv41c::{spec.name}"
        declared = spec.parsed().arguments
        attributes = {d.name: attribute_tag(a) for d, a in zip(declared, args, strict=True)
                      if "Tensor" not in str(d.type)}
        if self._cuda is not None:
            compiled = self._cuda.build(spec, args)
            if compiled is not None:
                return schema.Kernel(name, attributes, compiled.body, compiled.scratch_bytes)
            if spec.native is not None:
                raise _no_body(name, self._cuda.target)
        if spec.composition is not None:
            sequence = build_sequence(spec, make_args, self.find, self.kernels)
            return schema.Kernel(name, attributes, sequence.body, sequence.scratch_bytes)
        if spec.native is None:
            built = build_composite(name, spec.reference, make_args)
            return schema.Kernel(name, attributes, built.body, built.scratch_bytes)
        scratch: Expr = 0
        if spec.native.scratch_bytes is not None:
            needed = spec.native.scratch_bytes
            scratch = fit([int(needed(*make_args(rows))) for rows in PROBE_ROWS], schema.ROWS)
        return schema.Kernel(name, attributes, schema.NativeBody(spec.native.entry), scratch)


def _no_body(op: str, target: str) -> Dsv41cError:
    return Dsv41cError("DSV41C-E0201", f"body of {op}", found=f"no CUDA kernel for these shapes on {target}",
                       needed="a CUDA kernel, or a reference that ATen can run without host reads",
                       do="add a kernel in compiler/kernels, or remove the op from --fallback")


def attribute_tag(value: Any) -> schema.Attribute:
    """An attribute as the plan writes it."""
    if isinstance(value, float):
        return schema.FloatTag.of(value)
    if isinstance(value, torch.dtype):
        return schema.DtypeTag(str(value).removeprefix("torch."))
    if isinstance(value, bool | int | str):
        return value
    raise TypeError(f"attribute {value!r} of type {type(value).__name__}")


def _meta(argument: Any, rows: int) -> Any:
    if isinstance(argument, list):
        return [_meta(member, rows) for member in argument]
    return argument.meta(rows) if isinstance(argument, TensorShape) else argument


def _hashable(argument: Any) -> object:
    """Floats by their bits: 1.0 and 1 and True would be one key."""
    if isinstance(argument, list):
        return tuple(map(_hashable, argument))
    if isinstance(argument, float):
        return ("float", argument.hex())
    return (type(argument).__name__, argument)
