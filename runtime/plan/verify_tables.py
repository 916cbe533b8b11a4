"""Rules of the plan's tables: features, symbols, memory, weights, state, bridges, method names, flows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from dsv41c.runtime.plan.codec import check_features
from dsv41c.runtime.plan.schema import (
    ALIGNMENT,
    AXES,
    DTYPES,
    FLOW_REQUIREMENTS,
    MAX_BYTES,
    MAX_DIMS,
    ROWS,
    TARGETS,
    Bridge,
    CompositeBody,
    CudaBody,
    Flow,
    NativeBody,
    Plan,
    SequenceBody,
    State,
    Symbol,
    Weight,
)
from dsv41c.runtime.plan.verify_geometry import Range, broken, check_offset, numbers

FEATURE_OF_BODY: dict[type, str] = {
    CompositeBody: "aten_composites", CudaBody: "cuda_cubin", NativeBody: "native_cpu",
    SequenceBody: "kernel_sequences",
}


def check_tables(plan: Plan) -> None:
    _check_features(plan)
    _check_symbols(plan)
    _check_memory(plan)
    for what, table in (("weight", plan.weights), ("state", plan.state), ("bridge", plan.bridges)):
        check_unique((entry.name for entry in table), what)
        for entry in table:
            _check_sizes(entry, f"{what} {entry.name}")
    _check_state(plan.state, plan.memory.state_bytes)
    _check_methods(plan)
    check_unique((flow.name for flow in plan.flows), "flow")
    for flow in plan.flows:
        _check_flow(flow, {method.name: method.axis for method in plan.methods})


def check_unique(names: Iterable[str], what: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise broken("duplicate name", f"{what} {name}", f"two of {name}", "one of each name")
        seen.add(name)


def check_choice(text: str, choices: Sequence[str], what: str, where: str) -> None:
    if text not in choices:
        raise broken(f"unknown {what}", where, text, f"one of: {' '.join(choices)}")


def _check_features(plan: Plan) -> None:
    features = plan.required_features
    check_features(features, "required_features")
    if list(features) != sorted(set(features)):
        raise broken("features are not sorted", "required_features", " ".join(features),
                     "each once, in order")
    for index, kernel in enumerate(plan.kernels):
        needed = FEATURE_OF_BODY[type(kernel.body)]
        if needed not in features:
            raise broken("feature is not declared", f"kernel {index} {kernel.op}", f"no {needed}",
                         f"{needed} in required_features")
    check_choice(plan.target, TARGETS, "target", "target")
    wrong = NativeBody if plan.target != "cpu" else CudaBody
    for index, kernel in enumerate(plan.kernels):
        if isinstance(kernel.body, wrong):
            raise broken("body of another target", f"kernel {index} {kernel.op}",
                         f"a {wrong.TAG.name} body", f"a body that runs on {plan.target}")


def _check_symbols(plan: Plan) -> None:
    check_unique((symbol.name for symbol in plan.symbols), "symbol")
    for symbol in plan.symbols:
        if symbol.name == ROWS or not symbol.name:
            raise broken("reserved symbol name", f"symbol {symbol.name}", f'"{symbol.name}"', "another name")
        if not 1 <= symbol.lo <= symbol.hi:
            raise broken("bad symbol bounds", f"symbol {symbol.name}", f"{symbol.lo} to {symbol.hi}",
                         "1 <= lo <= hi")


def _check_memory(plan: Plan) -> None:
    memory = plan.memory
    parts = {"state_bytes": memory.state_bytes, "bridge_bytes": memory.bridge_bytes,
             "io_bytes": memory.io_bytes, "arena_bytes": memory.arena_bytes}
    for name, size in parts.items():
        if not 0 <= size <= MAX_BYTES or size % ALIGNMENT:
            raise broken("bad memory size", f"memory {name}", size,
                         f"a multiple of {ALIGNMENT} up to {MAX_BYTES}")
    total = sum(parts.values())
    if memory.total_bytes != total:
        raise broken("memory total is wrong", "memory total_bytes", memory.total_bytes, f"{total}, the sum")
    largest = max((method.arena_bytes for method in plan.methods), default=0)
    if memory.arena_bytes != largest:
        raise broken("memory arena is wrong", "memory arena_bytes", memory.arena_bytes,
                     f"{largest}, the most of a method")


def _check_sizes(entry: Weight | State | Bridge, where: str) -> None:
    if len(entry.sizes) > MAX_DIMS:
        raise broken("too many dimensions", where, len(entry.sizes), f"at most {MAX_DIMS}")
    table_bytes(entry, where)


def table_bytes(entry: Weight | State | Bridge, where: str) -> int:
    """Bytes of a contiguous tensor of a table."""
    if any(size < 1 for size in entry.sizes):
        raise broken("size below 1", where, numbers(entry.sizes), "sizes of at least 1")
    size_bytes = math.prod(entry.sizes) * DTYPES[entry.dtype].item_bytes
    if size_bytes > MAX_BYTES:
        raise broken("tensor is too large", where, numbers(entry.sizes), f"at most {MAX_BYTES} bytes")
    return size_bytes


def _check_state(entries: Sequence[State], capacity: int) -> None:
    end, last = 0, ""
    for entry in sorted(entries, key=lambda e: e.offset):
        where = f"state {entry.name}"
        bytes_ = Range("state", entry.offset, entry.offset + table_bytes(entry, where))
        check_range(bytes_, capacity, where)
        if bytes_.begin < end:
            raise broken("ranges overlap", where, bytes_, f"a begin of at least {end}, the end of {last}")
        end, last = bytes_.end, entry.name


def check_range(bytes_: Range, capacity: int, where: str) -> None:
    """A root's range: aligned and inside its region."""
    check_offset(bytes_.begin, ALIGNMENT, bytes_.begin, where)
    if bytes_.end > capacity:
        raise broken("range outside its region", where, str(bytes_), f"an end of at most {capacity}")


def _check_methods(plan: Plan) -> None:
    check_unique((method.name for method in plan.methods), "method")
    symbols = {symbol.name: symbol for symbol in plan.symbols}
    for method in plan.methods:
        where = f"method {method.name}"
        check_choice(method.axis, AXES, "axis", where)
        if method.symbol not in symbols:
            raise broken("unknown symbol", where, f"symbol {method.symbol}", "a symbol of the plan")
        _check_buckets(method.buckets, symbols[method.symbol], where)


def _check_buckets(buckets: Sequence[int], symbol: Symbol, where: str) -> None:
    for previous, bucket in zip((0, *buckets), buckets, strict=False):
        if not symbol.lo <= bucket <= symbol.hi:
            raise broken("bucket outside the bounds", where, f"bucket {bucket}",
                         f"{symbol.lo} to {symbol.hi}")
        if bucket <= previous:
            raise broken("buckets are not ascending", where, f"{bucket} after {previous}", "each larger")


def _check_flow(flow: Flow, methods: Mapping[str, str]) -> None:
    """`methods`: the axis of each."""
    where = f"flow {flow.name}"
    check_choice(flow.requires, FLOW_REQUIREMENTS, "requirement", where)
    if not flow.methods:
        raise broken("empty flow", where, "no method", "at least one method")
    for name in flow.methods:
        if name not in methods:
            raise broken("unknown method", where, f"method {name}", f"one of: {' '.join(methods)}")
    for name, axis in methods.items():
        if axis == "groups" and name in flow.methods and len(flow.methods) > 1:
            raise broken("groups beside rows in a flow", where, f"method {name} on axis groups", "a flow of its own")
    if len(set(flow.methods)) != len(flow.methods):
        raise broken("method twice in a flow", where, " ".join(flow.methods), "each method once")
