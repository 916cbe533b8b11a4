"""Rules of composite bodies: locals lie inside their base, temporaries are written before they are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dsv41c.runtime.plan.schema import (
    DTYPES,
    ROWS,
    ArgLocal,
    Call,
    CallArgument,
    CompositeBody,
    ConstantLocal,
    CudaBody,
    IntListTag,
    IntTag,
    Kernel,
    Local,
    MutableTag,
    Plan,
    TempLocal,
    TensorListTag,
    TensorTag,
    ViewLocal,
)
from dsv41c.runtime.plan.verify_cuda import check_cuda_body
from dsv41c.runtime.plan.verify_geometry import (
    Range,
    add_offset,
    broken,
    check_index,
    check_offset,
    evaluate_at,
    evaluate_extent,
    shape_at,
)
from dsv41c.runtime.plan.verify_lifetimes import Lifetime, check_disjoint_lives
from dsv41c.runtime.plan.verify_values import points_of


@dataclass(frozen=True)
class PlacedLocal:
    """The local that owns the bytes, and the bytes: of the scratch, of an argument or of a constant."""

    root: int
    bytes: Range


@dataclass
class KernelFacts:
    """What launches of the kernel must respect. `arguments`: index to dtype; `span_bytes`: (rows, index)."""

    is_composite: bool
    scratch_bytes: dict[int, int] = field(default_factory=dict)
    arguments: dict[int, str] = field(default_factory=dict)
    span_bytes: dict[tuple[int, int], int] = field(default_factory=dict)
    written: set[int] = field(default_factory=set)
    read_first: set[int] = field(default_factory=set)


def check_kernels(plan: Plan) -> list[KernelFacts]:
    """Checks each kernel at the points of every method that launches it (at one row when none does)."""
    points: list[set[int]] = [set() for _ in plan.kernels]
    symbols = {symbol.name: symbol for symbol in plan.symbols}
    for method in plan.methods:
        for launch in (launch for step in method.steps for launch in step.launches):
            if 0 <= launch.kernel < len(plan.kernels):
                points[launch.kernel].update(points_of(method, symbols[method.symbol]))
    return [_check_kernel(kernel, f"kernel {index} {kernel.op}", sorted(points[index] or {1}))
            for index, kernel in enumerate(plan.kernels)]


def _check_kernel(kernel: Kernel, where: str, points: Sequence[int]) -> KernelFacts:
    facts = KernelFacts(isinstance(kernel.body, CompositeBody))
    for rows in points:
        scratch = evaluate_extent(kernel.scratch_bytes, {ROWS: rows}, where)
        if scratch < 0:
            raise broken("negative scratch", where, scratch, "at least 0 bytes")
        facts.scratch_bytes[rows] = scratch
        if isinstance(kernel.body, CompositeBody):
            _check_body(kernel.body, where, rows, facts)
        elif isinstance(kernel.body, CudaBody):
            check_cuda_body(kernel.body, {ROWS: rows}, scratch, where)
    return facts


def _check_body(body: CompositeBody, where: str, rows: int, facts: KernelFacts) -> None:
    placed: list[PlacedLocal] = []
    for index, local in enumerate(body.locals):
        place = f"{where}, local {index}"
        placed.append(_place(local, placed, {ROWS: rows}, facts.scratch_bytes[rows], place))
        if isinstance(local, ArgLocal):
            facts.arguments.setdefault(local.index, local.dtype)
            span = max(placed[index].bytes.end, facts.span_bytes.get((rows, local.index), 0))
            facts.span_bytes[rows, local.index] = span
    lives: dict[int, Lifetime] = {}
    written: set[int] = set()
    for moment, call in enumerate(body.calls):
        _check_call(body, placed, call, f"{where}, call {moment} {call.op}", written, facts)
        _check_integers(call, {ROWS: rows}, f"{where}, call {moment} {call.op}")
        for index in sorted(local for argument in call.args for local in _locals_of(argument)):
            root = placed[index].root
            if isinstance(body.locals[root], TempLocal):
                place = f"{where}, local {root}"
                lives.setdefault(root, Lifetime(place, placed[root].bytes, moment, moment)).last = moment
    check_disjoint_lives(lives[root] for root in sorted(lives))


def _place(
    local: Local, placed: Sequence[PlacedLocal], symbols: Mapping[str, int], scratch: int, where: str
) -> PlacedLocal:
    index = len(placed)
    if isinstance(local, ConstantLocal):
        return PlacedLocal(index, Range("constant", 0, DTYPES[local.dtype].item_bytes))
    shape = shape_at(local.sizes, local.strides, local.dtype, symbols=symbols, where=where)
    if isinstance(local, ArgLocal):
        if local.index < 0:
            raise broken("argument index out of range", where, local.index, "at least 0")
        return PlacedLocal(index, Range(f"argument {local.index}", 0, shape.span_bytes))
    offset = evaluate_extent(local.offset, symbols, where)
    if isinstance(local, ViewLocal):
        check_index(local.of, index, "view base", where)
        base = placed[local.of]
        begin = add_offset(base.bytes.begin, offset, local.dtype, where)
        view = Range(base.bytes.region, begin, begin + shape.span_bytes)
        if view.begin < base.bytes.begin or view.end > base.bytes.end:
            raise broken("view outside its base", where, str(view), str(base.bytes))
        return PlacedLocal(base.root, view)
    check_offset(offset, DTYPES[local.dtype].item_bytes, offset, where)
    temp = Range("scratch", offset, offset + shape.span_bytes)
    if temp.end > scratch:
        raise broken("temporary outside the scratch", where, str(temp), f"an end of at most {scratch}")
    return PlacedLocal(index, temp)


def _check_call(
    body: CompositeBody, placed: Sequence[PlacedLocal], call: Call, where: str, written: set[int],
    facts: KernelFacts,
) -> None:
    """Reads come before writes: the out tensors of a call are written from its other arguments."""
    for argument in call.args:
        for index in _locals_of(argument):
            check_index(index, len(body.locals), "local", where)
    for argument in call.args:
        for index in [] if isinstance(argument, MutableTag) else _locals_of(argument):
            root = body.locals[placed[index].root]
            if isinstance(root, TempLocal) and placed[index].root not in written:
                raise broken("temporary is read before it is written", where, f"local {index}",
                             "an earlier call that writes it")
            if isinstance(root, ArgLocal) and root.index not in facts.written:
                facts.read_first.add(root.index)
    for argument in call.args:
        if isinstance(argument, MutableTag):
            owner = placed[argument.local].root
            root = body.locals[owner]
            if isinstance(root, ConstantLocal):
                raise broken("constant is written", where, f"local {argument.local}",
                             "a temporary or an argument")
            written.add(owner)
            if isinstance(root, ArgLocal):
                facts.written.add(root.index)


def _check_integers(call: Call, symbols: Mapping[str, int], where: str) -> None:
    for argument in call.args:
        values = (argument.value,) if isinstance(argument, IntTag) else ()
        for expr in argument.values if isinstance(argument, IntListTag) else values:
            evaluate_at(expr, symbols, where)


def _locals_of(argument: CallArgument) -> tuple[int, ...]:
    if isinstance(argument, (TensorTag, MutableTag)):
        return (argument.local,)
    return argument.locals if isinstance(argument, TensorListTag) else ()
