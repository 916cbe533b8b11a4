"""CUDA bodies of kernels: kernel launches with parameters and launch shape, copies and memsets."""

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


Pointer = TensorParam | ScratchParam


@dataclass(frozen=True)
class TensorMapParam:
    """A CUtensorMap by value, encoded when the launch is bound. Dimensions run from the innermost one on; sizes,
    box and element strides in elements; strides in bytes, from the second dimension on. dtype, interleave, swizzle,
    l2_promotion and oob_fill by the names of format.py."""

    TAG: ClassVar[Tag] = Tag("tensor_map", "object")
    tensor: Pointer
    dtype: str
    sizes: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    interleave: str
    swizzle: str
    l2_promotion: str
    oob_fill: str


CudaParam = TensorParam | ScratchParam | Int32Param | Int64Param | FloatParam | TensorMapParam


@dataclass(frozen=True)
class CudaLaunch:
    """A kernel. `cubin`: SHA-256 of the file in `kernels/`; params in the function's own order; grid and block in
    x, y, z."""

    TAG: ClassVar[Tag] = Tag("kernel", "object")
    cubin: str
    symbol: str
    params: tuple[CudaParam, ...]
    grid: tuple[Expr, ...]
    block: tuple[int, ...]
    shared_bytes: int


@dataclass(frozen=True)
class CudaCopy:
    """`bytes` from the start of `source` to the start of `target`, both in device memory."""

    TAG: ClassVar[Tag] = Tag("copy", "object")
    target: Pointer
    source: Pointer
    bytes: Expr


@dataclass(frozen=True)
class CudaMemset:
    """`bytes` bytes of `value` (0 to 255) from the start of `target`."""

    TAG: ClassVar[Tag] = Tag("memset", "object")
    target: Pointer
    value: int
    bytes: Expr


CudaNode = CudaLaunch | CudaCopy | CudaMemset


@dataclass(frozen=True)
class CudaBody:
    """One or more nodes on one stream, in order."""

    TAG: ClassVar[Tag] = Tag("cuda", "kind")
    launches: tuple[CudaNode, ...]
