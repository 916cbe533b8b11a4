"""What a kernel is before and after it is built: its source, the launch record of a plan and the compiled result."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dsv41c.runtime.plan import expr
from dsv41c.runtime.plan.expr import Expr

ROOT = Path(__file__).parent  # file names of sources are relative to it
TARGETS = ("sm_90a", "sm_100a")


@dataclass(frozen=True)
class Tensor:
    """Pointer to tensor `index` of the launch: op inputs in schema order, absent ones counted, then outputs."""

    index: int

    def to_json(self) -> dict[str, object]:
        return {"tensor": self.index}


@dataclass(frozen=True)
class Scratch:
    """Pointer into the launch's scratch, in bytes from its start."""

    offset: Expr

    def to_json(self) -> dict[str, object]:
        return {"scratch": expr.to_json(self.offset)}


@dataclass(frozen=True)
class Int32:
    value: Expr

    def to_json(self) -> dict[str, object]:
        return {"int32": expr.to_json(self.value)}


@dataclass(frozen=True)
class Int64:
    value: Expr

    def to_json(self) -> dict[str, object]:
        return {"int64": expr.to_json(self.value)}


@dataclass(frozen=True)
class Float:
    """A float32 parameter; the plan holds no floating point numbers, so it is written as hex."""

    value: float

    def to_json(self) -> dict[str, object]:
        return {"float": self.value.hex()}


Pointer = Tensor | Scratch


@dataclass(frozen=True)
class MapLayout:
    """How a CUtensorMap looks at memory. Dimensions from the innermost one on: sizes in elements, strides in bytes from
    the second one on; names as runtime/plan/format.py has them. Sizes may use the kernel's own integer parameters until
    the launch record is made."""

    dtype: str
    sizes: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    interleave: str
    swizzle: str
    l2_promotion: str
    oob_fill: str


@dataclass(frozen=True)
class TensorMap:
    """A CUtensorMap by value, over one of the kernel's tensors."""

    tensor: Pointer
    layout: MapLayout

    def to_json(self) -> dict[str, object]:
        layout = self.layout
        return {"tensor_map": vars(layout) | {
            "tensor": self.tensor.to_json(), "sizes": [expr.to_json(e) for e in layout.sizes],
            "strides": [expr.to_json(e) for e in layout.strides], "box": list(layout.box),
            "element_strides": list(layout.element_strides)}}

    @staticmethod
    def from_json(node: Mapping[str, Any]) -> TensorMap:
        fields = dict(node)
        tensor = _param(fields.pop("tensor"))
        assert isinstance(tensor, Pointer)
        lists = {name: tuple(expr.from_json(e) for e in fields[name]) for name in ("sizes", "strides")}
        lists |= {name: tuple(fields[name]) for name in ("box", "element_strides")}
        return TensorMap(tensor, MapLayout(**{**fields, **lists}))


@dataclass(frozen=True)
class Copy:
    """A launch that is no kernel: bytes from one place to another, both on the device."""

    target: Pointer
    source: Pointer
    bytes: Expr


@dataclass(frozen=True)
class Memset:
    """A launch that is no kernel: bytes of one value."""

    target: Pointer
    value: int
    bytes: Expr


Param = Tensor | Scratch | Int32 | Int64 | Float | TensorMap
Grid = tuple[Expr, Expr, Expr]
Block = tuple[int, int, int]


@dataclass(frozen=True, kw_only=True)
class KernelSource:
    """One kernel to build. A `.cu` file takes `constants` as macros, a `.py` file as arguments of its `build`.

    `bindings` gives a value to every parameter of the kernel by the name it has in the source; a TileLang tensor that
    is moved through a tensor map is bound to its pointer, and the map is TileLang's. `grid`, `block` and
    `shared_bytes` are stated for `.cu` files; TileLang states them itself. `manual_sync` turns TileLang's own
    barriers off: every barrier is then in the builder. `tensor_maps` lets TileLang copy tiles through tensor maps.
    """

    file: str
    constants: tuple[tuple[str, int], ...]
    bindings: tuple[tuple[str, Param], ...]
    grid: Grid = (1, 1, 1)
    block: Block = (1, 1, 1)
    shared_bytes: int = 0
    spill_limit_bytes: int = 0
    manual_sync: bool = False
    tensor_maps: bool = False

    @property
    def path(self) -> Path:
        return ROOT / self.file

    @property
    def is_tilelang(self) -> bool:
        return self.file.endswith(".py")

    def description(self) -> str:
        """Everything of it that decides what is built, as canonical text."""
        fields = asdict(self) | {"bindings": [(n, p.to_json()) for n, p in self.bindings],
                                 "grid": [expr.to_json(e) for e in self.grid]}
        return json.dumps(fields, sort_keys=True)


@dataclass(frozen=True)
class LaunchRecord:
    """How a plan launches the kernel. Expressions use the symbol "rows" only."""

    symbol: str
    params: tuple[Param, ...]
    grid: Grid
    block: Block
    shared_bytes: int
    registers: int
    spill_bytes: int

    def to_json(self) -> dict[str, Any]:
        return {
            "symbol": self.symbol, "params": [p.to_json() for p in self.params],
            "grid": [expr.to_json(e) for e in self.grid], "block": list(self.block),
            "shared_bytes": self.shared_bytes, "registers": self.registers, "spill_bytes": self.spill_bytes,
        }

    @staticmethod
    def from_json(node: Mapping[str, Any]) -> LaunchRecord:
        gx, gy, gz = (expr.from_json(e) for e in node["grid"])
        bx, by, bz = node["block"]
        return LaunchRecord(node["symbol"], tuple(_param(p) for p in node["params"]), (gx, gy, gz), (bx, by, bz),
                            node["shared_bytes"], node["registers"], node["spill_bytes"])


def _param(node: Mapping[str, Any]) -> Param:
    ((kind, value),) = node.items()
    if kind == "tensor":
        return Tensor(value)
    if kind == "tensor_map":
        return TensorMap.from_json(value)
    if kind == "float":
        return Float(float.fromhex(value))
    kinds: dict[str, type[Scratch] | type[Int32] | type[Int64]] = {"scratch": Scratch, "int32": Int32, "int64": Int64}
    return kinds[kind](expr.from_json(value))


@dataclass(frozen=True)
class CompiledKernel:
    cubin: bytes
    digest: str
    record: LaunchRecord

    @staticmethod
    def of(cubin: bytes, record: LaunchRecord) -> CompiledKernel:
        return CompiledKernel(cubin, hashlib.sha256(cubin).hexdigest(), record)
