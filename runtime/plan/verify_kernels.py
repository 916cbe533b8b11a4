"""Rules of kernels, and of composite bodies: temporaries are written before they are read, and share no byte."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dsv41c.runtime.plan.schema import (
    ROWS,
    ArgLocal,
    Call,
    CallArgument,
    CompositeBody,
    ConstantLocal,
    CudaBody,
    IntListTag,
    IntTag,
    MutableTag,
    Plan,
    SequenceBody,
    TempLocal,
    TensorListTag,
    TensorTag,
)
from dsv41c.runtime.plan.verify_arguments import KernelFacts
from dsv41c.runtime.plan.verify_cuda import check_cuda_body
from dsv41c.runtime.plan.verify_geometry import broken, check_index, evaluate_at, evaluate_extent
from dsv41c.runtime.plan.verify_lifetimes import Lifetime, check_disjoint_lives
from dsv41c.runtime.plan.verify_locals import PlacedLocal, note_argument, place_local
from dsv41c.runtime.plan.verify_sequences import SequenceRules
from dsv41c.runtime.plan.verify_values import points_of


def check_kernels(plan: Plan) -> list[KernelFacts]:
    """Checks each kernel at the points of every method that launches it (at one row when none does)."""
    points: list[set[int]] = [set() for _ in plan.kernels]
    symbols = {symbol.name: symbol for symbol in plan.symbols}
    for method in plan.methods:
        for launch in (launch for step in method.steps for launch in step.launches):
            if 0 <= launch.kernel < len(plan.kernels):
                points[launch.kernel].update(points_of(method, symbols[method.symbol]))
    _pass_on_to_parts(plan, points)
    facts: list[KernelFacts] = []
    for at in points:
        facts.append(_check_kernel(plan, facts, sorted(at or {1})))
    return facts


def _pass_on_to_parts(plan: Plan, points: list[set[int]]) -> None:
    """A kernel that a sequence runs runs at the sequence's points too."""
    for index in reversed(range(len(plan.kernels))):
        body = plan.kernels[index].body
        for part in body.parts if isinstance(body, SequenceBody) else ():
            if 0 <= part.kernel < index:
                points[part.kernel].update(points[index] or {1})


def _check_kernel(plan: Plan, known: Sequence[KernelFacts], points: Sequence[int]) -> KernelFacts:
    """Of the kernel behind those whose facts are `known`."""
    kernel = plan.kernels[len(known)]
    where = f"kernel {len(known)} {kernel.op}"
    facts = KernelFacts(isinstance(kernel.body, (CompositeBody, SequenceBody)))
    for rows in points:
        scratch = evaluate_extent(kernel.scratch_bytes, {ROWS: rows}, where)
        if scratch < 0:
            raise broken("negative scratch", where, scratch, "at least 0 bytes")
        facts.scratch_bytes[rows] = scratch
        if isinstance(kernel.body, CompositeBody):
            _check_body(kernel.body, where, rows, facts)
        elif isinstance(kernel.body, SequenceBody):
            SequenceRules(plan, known, facts, rows).check()
        elif isinstance(kernel.body, CudaBody):
            check_cuda_body(kernel.body, {ROWS: rows}, scratch, where)
    return facts


def _check_body(body: CompositeBody, where: str, rows: int, facts: KernelFacts) -> None:
    placed: list[PlacedLocal] = []
    for index, local in enumerate(body.locals):
        place = f"{where}, local {index}"
        placed.append(place_local(local, placed, {ROWS: rows}, facts.scratch_bytes[rows], place))
        note_argument(local, placed[index], rows, facts)
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
