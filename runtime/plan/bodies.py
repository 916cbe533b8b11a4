"""Kernels of the plan: native bodies, ATen composites with the tagged arguments of their calls, sequences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dsv41c.runtime.plan.arguments import Argument
from dsv41c.runtime.plan.cuda_bodies import CudaBody
from dsv41c.runtime.plan.expr import Expr
from dsv41c.runtime.plan.format import Tag

# --- call arguments of a composite body; FloatTag and DtypeTag are attribute values too ----------


@dataclass(frozen=True)
class TensorTag:
    TAG: ClassVar[Tag] = Tag("t", "value")
    local: int


@dataclass(frozen=True)
class MutableTag:
    """A tensor that the call writes."""

    TAG: ClassVar[Tag] = Tag("m", "value")
    local: int


@dataclass(frozen=True)
class TensorListTag:
    TAG: ClassVar[Tag] = Tag("ts", "value")
    locals: tuple[int, ...]


@dataclass(frozen=True)
class IntTag:
    TAG: ClassVar[Tag] = Tag("i", "value")
    value: Expr


@dataclass(frozen=True)
class IntListTag:
    TAG: ClassVar[Tag] = Tag("is", "value")
    values: tuple[Expr, ...]


@dataclass(frozen=True)
class FloatTag:
    """A float as float.hex() writes it: JSON numbers would not keep every bit everywhere."""

    TAG: ClassVar[Tag] = Tag("f", "value")
    hex: str

    @classmethod
    def of(cls, value: float) -> FloatTag:
        return cls(float(value).hex())


@dataclass(frozen=True)
class BoolTag:
    TAG: ClassVar[Tag] = Tag("b", "value")
    value: bool


@dataclass(frozen=True)
class DtypeTag:
    TAG: ClassVar[Tag] = Tag("dtype", "value")
    dtype: str


@dataclass(frozen=True)
class StringTag:
    TAG: ClassVar[Tag] = Tag("s", "value")
    value: str


@dataclass(frozen=True)
class NoneTag:
    TAG: ClassVar[Tag] = Tag("none", "value")


CallArgument = (
    TensorTag | MutableTag | TensorListTag | IntTag | IntListTag | FloatTag | BoolTag | DtypeTag | StringTag
    | NoneTag
)
Attribute = int | bool | str | FloatTag | DtypeTag

# --- kernels ---------------------------------------------


@dataclass(frozen=True)
class ArgLocal:
    """A tensor of the launch: inputs in schema order (absent optionals included), then outputs."""

    TAG: ClassVar[Tag] = Tag("arg", "kind")
    index: int
    dtype: str
    sizes: tuple[Expr, ...]
    strides: tuple[Expr, ...]


@dataclass(frozen=True)
class TempLocal:
    """A range of the launch's scratch; offset in bytes."""

    TAG: ClassVar[Tag] = Tag("temp", "kind")
    dtype: str
    sizes: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    offset: Expr


@dataclass(frozen=True)
class ViewLocal:
    """Part of an earlier local; offset in elements of this dtype."""

    TAG: ClassVar[Tag] = Tag("view", "kind")
    of: int
    dtype: str
    sizes: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    offset: Expr


@dataclass(frozen=True)
class ConstantLocal:
    """A 0-dim tensor."""

    TAG: ClassVar[Tag] = Tag("constant", "kind")
    dtype: str
    value: int | FloatTag


SequenceLocal = ArgLocal | TempLocal | ViewLocal
Local = ArgLocal | TempLocal | ViewLocal | ConstantLocal


@dataclass(frozen=True)
class Call:
    """One ATen call; args are all arguments of the op's schema in order, out ones included."""

    op: str
    overload: str
    args: tuple[CallArgument, ...]


@dataclass(frozen=True)
class NativeBody:
    TAG: ClassVar[Tag] = Tag("native", "kind")
    entry: str


@dataclass(frozen=True)
class CompositeBody:
    TAG: ClassVar[Tag] = Tag("composite", "kind")
    locals: tuple[Local, ...]
    calls: tuple[Call, ...]


@dataclass(frozen=True)
class Part:
    """One kernel of a sequence: `kernel` indexes the plan's kernels, earlier than the sequence and no sequence itself.

    `tensors`: inputs in schema order, then outputs; their values are locals. `scratch`: byte offset of the part's own
    scratch in the launch's scratch, 0 when it needs none.
    """

    kernel: int
    tensors: tuple[Argument, ...]
    scratch: Expr


@dataclass(frozen=True)
class SequenceBody:
    """Other kernels one after another. Locals are tensors as launches have them; temporaries are contiguous."""

    TAG: ClassVar[Tag] = Tag("sequence", "kind")
    locals: tuple[SequenceLocal, ...]
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Kernel:
    """`attributes`: the op's arguments that are no tensors, by name; whatever the target, they fix the maths."""

    op: str
    attributes: dict[str, Attribute]
    body: NativeBody | CompositeBody | CudaBody | SequenceBody
    scratch_bytes: Expr
