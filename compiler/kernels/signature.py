"""Reads the arguments of an op call by name and states kernels of `cuda/` for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from dsv41c.compiler.affine import product
from dsv41c.compiler.kernels.source import Copy, Float, KernelSource, Memset, Param, Tensor
from dsv41c.compiler.ops.native import DTYPE_CODES
from dsv41c.compiler.ops.spec import OpSpec
from dsv41c.compiler.tensor_shape import TensorShape, members
from dsv41c.runtime.plan.expr import Binary, Expr

MAX_SHARED_BYTES = 227 * 1024  # what a block may ask for on sm_90 and sm_100
ELEMENT_THREADS = 256  # element.h

Bindings = Mapping[str, Param]
Constants = Mapping[str, int]


@dataclass(frozen=True)
class CudaSource:
    """The launches that make up one op, in order, and the scratch that they share."""

    launches: tuple[KernelSource | Copy | Memset, ...]
    scratch_bytes: Expr = 0

    @property
    def kernels(self) -> tuple[KernelSource, ...]:
        """Those to compile."""
        return tuple(launch for launch in self.launches if isinstance(launch, KernelSource))


class Unsupported(Exception):
    """These arguments have no plain kernel; `cuda_source` answers None."""


class Signature:
    """The arguments of one op call. Outputs follow the tensor inputs, members of a list one by one: `output(0)`,
    `output(1)` ..."""

    def __init__(self, spec: OpSpec, args: Sequence[Any]) -> None:
        declared = spec.parsed().arguments
        self._value = {d.name: a for d, a in zip(declared, args, strict=True)}
        self._tensors = [d.name for d, a in zip(declared, args, strict=True) if "Tensor" in str(d.type)
                         for _ in members([a])]

    def integer(self, name: str) -> int:
        return int(self._value[name])

    def real(self, name: str) -> Float:
        return Float(float(self._value[name]))

    def act_attribute(self, name: str) -> int:
        """Code of a dtype attribute that must be an activation's."""
        return _act_code(self._value[name])

    def item_bytes(self, name: str) -> int:
        """Of a dtype attribute."""
        return int(self._value[name].itemsize)

    def value(self, name: str) -> Any:
        """An attribute as it is."""
        return self._value[name]

    def shapes(self, name: str) -> list[TensorShape]:
        """Those of a list of tensors."""
        return list(self._value[name])

    def present(self, name: str) -> bool:
        return self._value[name] is not None

    def shape(self, name: str) -> TensorShape:
        value = self._value[name]
        if not isinstance(value, TensorShape):
            raise Unsupported(f"{name} is absent")
        return value

    def dtype(self, name: str) -> torch.dtype:
        return self.shape(name).dtype

    def act(self, name: str) -> int:
        """Code of a tensor that must be float32 or bfloat16."""
        return _act_code(self.dtype(name))

    def count(self, name: str) -> Expr:
        """First size: the rows, or a static capacity."""
        return self.shape(name).sizes[0]

    def size(self, name: str, dim: int) -> int:
        """A size that must be static."""
        return self.static(self.shape(name), dim)

    def static(self, shape: TensorShape, dim: int) -> int:
        size = shape.sizes[dim]
        if not isinstance(size, int):
            raise Unsupported(f"a tensor that is dynamic in dimension {dim}")
        return size

    def elements(self, name: str) -> Expr:
        return product(self.shape(name).sizes)

    def tensor(self, name: str, member: int = 0) -> Tensor:
        return Tensor(self._tensors.index(name) + member)

    def tensors(self, *names: str) -> dict[str, Param]:
        """Bindings of kernel parameters that carry the names of their arguments."""
        return {name: self.tensor(name) for name in names}

    def output(self, position: int = 0) -> Tensor:
        return Tensor(len(self._tensors) + position)


def _act_code(dtype: torch.dtype) -> int:
    if dtype not in (torch.float32, torch.bfloat16):
        raise Unsupported(f"dtype {dtype}")
    return DTYPE_CODES[dtype]


def ceil_div(a: Expr, b: int) -> Expr:
    return -(-a // b) if isinstance(a, int) else Binary("ceildiv", a, b)


def by_row(symbol: str, constants: Constants, bindings: Bindings, rows: Expr, threads: int, *, y: int = 1, z: int = 1,
           shared_bytes: int = 0) -> KernelSource:
    """A kernel with one block a row, times y and z."""
    return KernelSource(file=f"cuda/{symbol}.cu", constants=tuple(sorted(constants.items())),
                        bindings=tuple(bindings.items()), grid=(rows, y, z), block=(threads, 1, 1),
                        shared_bytes=shared_bytes)


def by_element(symbol: str, constants: Constants, bindings: Bindings, elements: Expr) -> KernelSource:
    """A kernel with one thread an element."""
    return by_row(symbol, constants, bindings, ceil_div(elements, ELEMENT_THREADS), ELEMENT_THREADS)
