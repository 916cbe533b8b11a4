"""The plan as frozen dataclasses: the executor's only instruction set, and the source of plan_generated.h.

A dataclass with a TAG is one case of a tagged union. Its form says how the JSON carries the tag:
  "kind"    {"kind": name, ...fields}
  "value"   {name: the only field}, or {name: true} without fields
  "object"  {name: {...fields}}
Every other dataclass is an object with exactly its fields as keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dsv41c.runtime.plan.arguments import Absent, Argument, In, InOut, Out
from dsv41c.runtime.plan.bodies import (
    ArgLocal,
    Attribute,
    BoolTag,
    Call,
    CallArgument,
    CompositeBody,
    ConstantLocal,
    DtypeTag,
    FloatTag,
    IntListTag,
    IntTag,
    Kernel,
    Local,
    MutableTag,
    NativeBody,
    NoneTag,
    Part,
    SequenceBody,
    SequenceLocal,
    StringTag,
    TempLocal,
    TensorListTag,
    TensorTag,
    ViewLocal,
)
from dsv41c.runtime.plan.cuda_bodies import (
    CudaBody,
    CudaCopy,
    CudaLaunch,
    CudaMemset,
    CudaNode,
    CudaParam,
    FloatParam,
    Int32Param,
    Int64Param,
    Pointer,
    ScratchParam,
    TensorMapParam,
    TensorParam,
)
from dsv41c.runtime.plan.expr import Binary, Expr
from dsv41c.runtime.plan.format import (
    ABOVE_LADDER,
    ALIGNMENT,
    AXES,
    BUCKET_POLICIES,
    DEVICE_ALIGNMENT,
    DTYPES,
    FEATURES,
    FLOW_REQUIREMENTS,
    FORMAT_VERSION,
    GRAPH_NODE_BYTES,
    INTERLEAVES,
    L2_PROMOTIONS,
    MAX_BLOCK_THREADS,
    MAX_BOX,
    MAX_BYTES,
    MAX_COPY_BYTES,
    MAX_COST_NS,
    MAX_DIMS,
    MAX_ELEMENT_STRIDE,
    MAX_GRID,
    MAX_MAP_DIMS,
    MAX_MAP_SIZE,
    MAX_MAP_STRIDE,
    MAX_SHARED_BYTES,
    OOB_FILLS,
    PAD_RULES,
    PLAN_VERSION,
    ROWS,
    SWIZZLES,
    TARGETS,
    Dtype,
    Tag,
)

__all__ = [
    "ABOVE_LADDER", "ALIGNMENT", "AXES", "Absent", "ArenaStorage", "ArgLocal", "Argument", "Attribute",
    "BUCKET_POLICIES", "Binary", "BoolTag", "Break", "Bridge", "BridgeStorage", "Call", "CallArgument", "Check",
    "CompositeBody", "ConstantLocal",
    "CudaBody", "CudaLaunch", "CudaParam", "DTYPES", "Dtype", "DtypeTag", "Expr", "FEATURES",
    "FLOW_REQUIREMENTS", "FORMAT_VERSION", "FloatParam", "FloatTag", "Flow", "In", "InOut", "Int32Param",
    "Int64Param", "IntListTag", "IntTag", "IoStorage", "Kernel", "Ladder", "Launch", "Local", "MAX_BLOCK_THREADS",
    "MAX_BYTES", "MAX_COST_NS", "MAX_DIMS", "MAX_GRID", "MAX_SHARED_BYTES", "Memory", "Method", "MutableTag",
    "NativeBody", "NoneTag", "Out", "PAD_RULES", "Part", "PLAN_VERSION", "Plan", "Port", "Provenance", "ROWS",
    "ScratchParam", "Segment", "SequenceBody", "SequenceLocal", "State", "StateStorage", "Step", "Storage",
    "StringTag", "Symbol", "TARGETS", "Tag", "TempLocal", "TensorListTag", "TensorParam", "TensorTag",
    "Value", "ViewLocal", "ViewStorage", "Weight", "WeightStorage",
    "CudaCopy", "CudaMemset", "CudaNode", "DEVICE_ALIGNMENT",
    "GRAPH_NODE_BYTES", "INTERLEAVES", "L2_PROMOTIONS", "MAX_BOX", "MAX_COPY_BYTES",
    "MAX_ELEMENT_STRIDE", "MAX_MAP_DIMS", "MAX_MAP_SIZE", "MAX_MAP_STRIDE", "OOB_FILLS", "Pointer", "SWIZZLES",
    "TensorMapParam", "BridgeLife", "FlowLife", "StepsLife",
]

# --- methods ---------------------------------------------


@dataclass(frozen=True)
class ArenaStorage:
    TAG: ClassVar[Tag] = Tag("arena", "value")
    offset: int


@dataclass(frozen=True)
class WeightStorage:
    TAG: ClassVar[Tag] = Tag("weight", "value")
    index: int


@dataclass(frozen=True)
class StateStorage:
    TAG: ClassVar[Tag] = Tag("state", "value")
    index: int


@dataclass(frozen=True)
class BridgeStorage:
    TAG: ClassVar[Tag] = Tag("bridge", "value")
    index: int


@dataclass(frozen=True)
class IoStorage:
    TAG: ClassVar[Tag] = Tag("io", "value")
    offset: int


@dataclass(frozen=True)
class ViewStorage:
    """Part of an earlier value; offset in elements of the view's dtype."""

    TAG: ClassVar[Tag] = Tag("view", "object")
    of: int
    offset: Expr


Storage = ArenaStorage | WeightStorage | StateStorage | BridgeStorage | IoStorage | ViewStorage


@dataclass(frozen=True)
class Value:
    """pads: "rows" = pad rows hold harmless data, "valid" = proven valid indices, "none" = no row axis."""

    name: str
    dtype: str
    sizes: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    storage: Storage
    pads: str


@dataclass(frozen=True)
class Port:
    """pad: the fill of one row, one int per column; empty for outputs."""

    name: str
    value: int
    pad: tuple[int, ...]


@dataclass(frozen=True)
class Launch:
    name: str
    kernel: int
    tensors: tuple[Argument, ...]
    scratch: int | None


@dataclass(frozen=True)
class Segment:
    TAG: ClassVar[Tag] = Tag("segment", "object")
    launches: tuple[Launch, ...]


@dataclass(frozen=True)
class Break:
    TAG: ClassVar[Tag] = Tag("break", "object")
    op: str
    reason: str
    launches: tuple[Launch, ...]


Step = Segment | Break


@dataclass(frozen=True)
class Ladder:
    """How the buckets were chosen, what happens above the largest one, and the cost model behind the choice: a
    replay costs replay_ns and row_ns for each launched row, an eager run eager_ns more; integer nanoseconds.
    `block_rows`: the most rows of one run of a method whose steps may have more and are then run in blocks; 0: a step
    is never cut so."""

    policy: str
    above: str
    replay_ns: int
    row_ns: int
    eager_ns: int
    block_rows: int = 0


@dataclass(frozen=True)
class Method:
    name: str
    axis: str
    symbol: str
    buckets: tuple[int, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    values: tuple[Value, ...]
    steps: tuple[Step, ...]
    arena_bytes: int
    ladder: Ladder

    def run_rows(self, bound: int) -> int:
        """The most rows of one run when a step has at most `bound`."""
        return self.ladder.block_rows or bound


# --- the plan ---------------------------------------------


@dataclass(frozen=True)
class Provenance:
    model_digest: str
    options: dict[str, str | int | bool]
    producer: str


@dataclass(frozen=True)
class Symbol:
    name: str
    lo: int
    hi: int


@dataclass(frozen=True)
class Memory:
    state_bytes: int
    bridge_bytes: int
    io_bytes: int
    arena_bytes: int
    total_bytes: int


@dataclass(frozen=True)
class Weight:
    name: str
    dtype: str
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class State:
    name: str
    dtype: str
    sizes: tuple[int, ...]
    offset: int
    fill: int


@dataclass(frozen=True)
class FlowLife:
    """Carries a value between the methods of a flow; the bytes are nobody else's."""

    TAG: ClassVar[Tag] = Tag("flow", "value")


@dataclass(frozen=True)
class StepsLife:
    """Carries what a break of one method writes, from step `first`, the break, to step `last` of that method."""

    TAG: ClassVar[Tag] = Tag("steps", "object")
    method: str
    first: int
    last: int


BridgeLife = FlowLife | StepsLife


@dataclass(frozen=True)
class Bridge:
    name: str
    dtype: str
    sizes: tuple[int, ...]
    offset: int
    life: BridgeLife = FlowLife()


@dataclass(frozen=True)
class Flow:
    """Methods that run one after another; the first flow of the plan that fits a step is taken."""

    name: str
    methods: tuple[str, ...]
    requires: str


@dataclass(frozen=True)
class Check:
    prompt: tuple[int, ...]
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    version: int
    required_features: tuple[str, ...]
    target: str
    provenance: Provenance
    symbols: tuple[Symbol, ...]
    memory: Memory
    weights: tuple[Weight, ...]
    state: tuple[State, ...]
    bridges: tuple[Bridge, ...]
    kernels: tuple[Kernel, ...]
    methods: tuple[Method, ...]
    flows: tuple[Flow, ...]
    checks: tuple[Check, ...]
