"""Turns the recorded reference of an op into a composite body: out-variant ATen calls over scratch temporaries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from dsv41c.compiler.affine import PROBE_ROWS, contiguous_strides, fit, round_up, total
from dsv41c.compiler.out_form import OutCall, out_call
from dsv41c.compiler.tensor_shape import members
from dsv41c.compiler.trace_composite import CallRecord, Recording, TensorRecord, record_reference
from dsv41c.runtime.plan import schema
from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.runtime.plan.expr import Expr


@dataclass(frozen=True)
class CompositeResult:
    body: schema.CompositeBody
    scratch_bytes: Expr


def build_composite(op: str, reference: Callable[..., Any],
                    make_args: Callable[[int], Sequence[Any]]) -> CompositeResult:
    """`make_args(rows)` gives the op's arguments with meta tensors. E0201 when the body depends on the rows."""
    recordings = [record_reference(reference, make_args(rows)) for rows in (*PROBE_ROWS, 1)]
    for recording in recordings[1:]:
        _check_same_calls(op, recordings[0], recording)
    return _Builder(op, recordings[:-1], make_args(PROBE_ROWS[0])).build()


def _check_same_calls(op: str, first: Recording, other: Recording) -> None:
    left, right = [c.target for c in first.calls], [c.target for c in other.calls]
    if left != right:
        raise Dsv41cError("DSV41C-E0201", f"body of {op}", found="other calls at another number of rows",
                          needed="one call list for every number of rows", do="rewrite the op's reference")


class _Builder:
    """Walks the parallel recordings once; index 0 decides structure, all of them fit the sizes."""

    def __init__(self, op: str, recordings: Sequence[Recording], args: Sequence[Any]) -> None:
        self._op = op
        self._recordings = recordings
        self._locals: list[schema.Local] = []
        self._local_of: dict[tuple[TensorRecord, ...], int] = {}  # the tensor in every recording -> local
        self._base_of: dict[int, int] = {}  # storage -> base local
        self._calls: list[schema.Call] = []
        self._slots: list[tuple[Expr, list[int]]] = []  # scratch slots: bytes, storages that used them
        self._slot_of: dict[int, int] = {}
        self._present = [isinstance(a, torch.Tensor) for a in members(args)]
        self._is_tensor_slot = [a is None or isinstance(a, torch.Tensor) for a in members(args)]
        self._last_use = _last_uses(recordings[0])

    def build(self) -> CompositeResult:
        first = self._recordings[0]
        self._add_arguments()
        for index, call in enumerate(first.calls):
            self._lower(index, call)
        for position, output in enumerate(first.outputs):
            self._finish_output(position, output)
        scratch, offsets = self._offsets()
        placed = tuple(replace(x, offset=offsets[i]) if isinstance(x, schema.TempLocal) else x
                       for i, x in enumerate(self._locals))
        return CompositeResult(schema.CompositeBody(placed, tuple(self._calls)), scratch)

    def _add_arguments(self) -> None:
        """Inputs by their tensor positions, then outputs; an output that is an input's storage is copied."""
        slots = zip(self._present, self._is_tensor_slot, strict=True)
        tensor_slots = [present for present, is_slot in slots if is_slot]
        positions = [i for i, present in enumerate(tensor_slots) if present]
        for number, position in enumerate(positions):
            fits = [r.inputs[number] for r in self._recordings]
            self._add_base(fits, schema.ArgLocal(position, _dtype(fits[0]), *self._shape(fits)))
        self._first_output = len(tensor_slots)
        extents = _extents(self._recordings[0])
        for number, record in enumerate(self._recordings[0].outputs):
            owns = record.is_contiguous and record.offset == 0 and _extent_bytes(record) == extents[record.storage]
            if not owns or record.storage in self._base_of:
                continue  # part of something larger, or shared: computed in scratch and copied at the end
            fits = [r.outputs[number] for r in self._recordings]
            local = schema.ArgLocal(self._first_output + number, _dtype(record), *self._shape(fits))
            self._add_base(fits, local)

    def _add_base(self, fits: Sequence[TensorRecord], local: schema.Local) -> int:
        self._locals.append(local)
        index = len(self._locals) - 1
        self._base_of[fits[0].storage] = index
        self._local_of[tuple(fits)] = index
        return index

    def _shape(self, fits: Sequence[TensorRecord]) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
        dims = range(len(fits[0].sizes))
        sizes = tuple(fit([r.sizes[d] for r in fits], schema.ROWS) for d in dims)
        strides = tuple(fit([r.strides[d] for r in fits], schema.ROWS) for d in dims)
        return sizes, strides

    def _lower(self, index: int, call: CallRecord) -> None:
        twins = [r.calls[index] for r in self._recordings]
        emitted = out_call(self._op, call)
        if emitted is None:  # a view or an allocation: only its result matters
            for number, record in enumerate(call.results):
                self._local(index, record, [t.results[number] for t in twins])
            return
        args = [self._tag(index, emitted, position, value, twins) for position, value in enumerate(emitted.args)]
        self._calls.append(schema.Call(emitted.op, emitted.overload, tuple(args)))

    def _tag(self, index: int, emitted: OutCall, position: int, value: Any,
             twins: Sequence[CallRecord]) -> schema.CallArgument:
        if isinstance(value, TensorRecord):
            fits = [emitted.twin(t, position) for t in twins]
            local = self._local(index, value, fits)
            return schema.MutableTag(local) if position in emitted.written else schema.TensorTag(local)
        self._check_constant(emitted, position, value, twins)
        if value is None:
            return schema.NoneTag()
        if isinstance(value, torch.dtype):
            return schema.DtypeTag(str(value).removeprefix("torch."))
        if position in emitted.constants:
            return schema.TensorTag(self._constant(emitted.constants[position], value))
        if isinstance(value, bool):
            return schema.BoolTag(value)
        if isinstance(value, float):
            return schema.FloatTag.of(value)
        if isinstance(value, int):
            return schema.IntTag(fit([emitted.twin(t, position) for t in twins], schema.ROWS))
        if isinstance(value, list) and all(isinstance(v, int) for v in value):
            lists = [emitted.twin(t, position) for t in twins]
            return schema.IntListTag(tuple(fit([x[i] for x in lists], schema.ROWS) for i in range(len(value))))
        if isinstance(value, list) and all(isinstance(v, TensorRecord) for v in value):
            lists = [emitted.twin(t, position) for t in twins]
            locals_ = [self._local(index, v, [x[i] for x in lists]) for i, v in enumerate(value)]
            return schema.TensorListTag(tuple(locals_))
        raise _unsupported(self._op, f"argument {value!r} of {emitted.op}")

    def _check_constant(self, emitted: OutCall, position: int, value: Any, twins: Sequence[CallRecord]) -> None:
        """Only integers and lists may follow the rows; anything else must be the same at every number of rows."""
        may_move = isinstance(value, int) and not isinstance(value, bool) and position not in emitted.constants
        if not may_move and not isinstance(value, list) and any(emitted.twin(t, position) != value for t in twins):
            raise _unsupported(self._op, f"argument {value!r} of {emitted.op}, which depends on the rows")

    def _constant(self, dtype: torch.dtype, value: float) -> int:
        if not dtype.is_floating_point and value != int(value):
            raise _unsupported(self._op, f"the number {value!r} as an operand of {dtype}")
        stored = schema.FloatTag.of(float(value)) if dtype.is_floating_point else int(value)
        local = schema.ConstantLocal(str(dtype).removeprefix("torch."), stored)
        if local not in self._locals:
            self._locals.append(local)
        return self._locals.index(local)

    def _local(self, index: int, record: TensorRecord, fits: Sequence[TensorRecord]) -> int:
        """The local of a tensor: known, a view of a known storage, or a new temporary."""
        if tuple(fits) in self._local_of:
            return self._local_of[tuple(fits)]
        sizes, strides = self._shape(fits)
        if record.storage in self._base_of:
            base = self._base_of[record.storage]
            offset = fit([f.offset for f in fits], schema.ROWS)
            self._locals.append(schema.ViewLocal(base, _dtype(record), sizes, strides, offset))
            self._local_of[tuple(fits)] = len(self._locals) - 1
            return len(self._locals) - 1
        self._assign_slot(index, record, fits)
        return self._add_base(fits, schema.TempLocal(_dtype(record), sizes, strides, 0))

    def _assign_slot(self, index: int, record: TensorRecord, fits: Sequence[TensorRecord]) -> None:
        """Reuse a slot of the same size whose tensors are dead before this call."""
        size = round_up(fit([_extent_bytes(f) for f in fits], schema.ROWS), schema.ALIGNMENT)
        for number, (slot_bytes, users) in enumerate(self._slots):
            if slot_bytes == size and all(self._last_use[u] < index for u in users):
                users.append(record.storage)
                self._slot_of[record.storage] = number
                return
        self._slots.append((size, [record.storage]))
        self._slot_of[record.storage] = len(self._slots) - 1

    def _offsets(self) -> tuple[Expr, dict[int, Expr]]:
        starts = [total([size for size, _ in self._slots[:n]]) for n in range(len(self._slots) + 1)]
        offsets = {self._base_of[storage]: starts[slot] for storage, slot in self._slot_of.items()}
        return starts[-1], offsets

    def _finish_output(self, position: int, output: TensorRecord) -> None:
        """Outputs that share storage with an input or another output get a copy into their own tensor."""
        fits = [r.outputs[position] for r in self._recordings]
        owner = self._locals[self._base_of[output.storage]]
        if isinstance(owner, schema.ArgLocal) and owner.index == self._first_output + position:
            return
        source = self._local(len(self._recordings[0].calls), output, fits)
        sizes, _ = self._shape(fits)
        index = self._first_output + position
        self._locals.append(schema.ArgLocal(index, _dtype(output), sizes, contiguous_strides(sizes)))
        target = len(self._locals) - 1
        self._calls.append(schema.Call("aten::copy_", "", (schema.MutableTag(target), schema.TensorTag(source),
                                                           schema.BoolTag(False))))


def _last_uses(recording: Recording) -> dict[int, int]:
    last: dict[int, int] = {}
    for index, call in enumerate(recording.calls):
        for value in (*call.args, *call.results):
            for record in value if isinstance(value, list) else [value]:
                if isinstance(record, TensorRecord):
                    last[record.storage] = index
    for output in recording.outputs:
        last[output.storage] = len(recording.calls)
    return last


def _extents(recording: Recording) -> dict[int, int]:
    """Bytes of each storage that any tensor of the recording reaches."""
    extents: dict[int, int] = {}
    records = [r for call in recording.calls for value in (*call.args, *call.results)
               for r in (value if isinstance(value, list) else [value]) if isinstance(r, TensorRecord)]
    for record in (*recording.inputs, *recording.outputs, *records):
        extents[record.storage] = max(extents.get(record.storage, 0), _extent_bytes(record))
    return extents


def _extent_bytes(record: TensorRecord) -> int:
    span = 1 + sum((size - 1) * stride for size, stride in zip(record.sizes, record.strides, strict=True))
    return (record.offset + span) * record.dtype.itemsize


def _dtype(record: TensorRecord) -> str:
    return str(record.dtype).removeprefix("torch.")


def _unsupported(op: str, found: str) -> Dsv41cError:
    return Dsv41cError("DSV41C-E0201", f"body of {op}", found=found, needed="an ATen call with an out form",
                       do="rewrite the op's reference with calls that have one")

