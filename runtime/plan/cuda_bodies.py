"""CUDA bodies of kernels: which function of which cubin runs, with which parameters and launch shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dsv41c.runtime.plan.expr import Expr
from dsv41c.runtime.plan.format import Tag


@dataclass(frozen=True)
class TensorParam:
    """Pointer to tensor `index` of the launch (as in ArgLocal); null for an absent one."""

    TAG: ClassVar[Tag] = Tag("tensor", "value")
    index: int


@dataclass(frozen=True)
class ScratchParam:
    """Pointer into the launch's scratch; offset in bytes."""

    TAG: ClassVar[Tag] = Tag("scratch", "value")
    offset: Expr


@dataclass(frozen=True)
class Int32Param:
    TAG: ClassVar[Tag] = Tag("int32", "value")
    value: Expr


@dataclass(frozen=True)
class Int64Param:
    TAG: ClassVar[Tag] = Tag("int64", "value")
    value: Expr


@dataclass(frozen=True)
class FloatParam:
    """A float32 parameter, as float.hex() writes it."""

    TAG: ClassVar[Tag] = Tag("float", "value")
    hex: str


CudaParam = TensorParam | ScratchParam | Int32Param | Int64Param | FloatParam


@dataclass(frozen=True)
class CudaLaunch:
    """`cubin`: SHA-256 of the file in `kernels/`; params in the function's own order; grid and block in x, y, z."""

    cubin: str
    symbol: str
    params: tuple[CudaParam, ...]
    grid: tuple[Expr, ...]
    block: tuple[int, ...]
    shared_bytes: int


@dataclass(frozen=True)
class CudaBody:
    """One or more launches on one stream, in order."""

    TAG: ClassVar[Tag] = Tag("cuda", "kind")
    launches: tuple[CudaLaunch, ...]
