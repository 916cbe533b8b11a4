"""Turns the composition of a fused op into a sequence body: the kernels of its primitives, one after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from dsv41c.compiler.affine import PROBE_ROWS, fit
from dsv41c.compiler.ops.fused import dispatched
from dsv41c.compiler.ops.spec import OpSpec
from dsv41c.compiler.scratch_slots import ScratchSlots
from dsv41c.compiler.tensor_shape import TensorShape, members
from dsv41c.compiler.trace_composite import CallRecord, Recording, TensorRecord, record_reference
from dsv41c.runtime.plan import schema
from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.runtime.plan.expr import Expr

_VIEWS = {"aten::view", "aten::_unsafe_view", "aten::detach"}


@dataclass(frozen=True)
class SequenceResult:
    body: schema.SequenceBody
    scratch_bytes: Expr


def build_sequence(spec: OpSpec, make_args: Callable[[int], Sequence[Any]], find: Callable[[str, Sequence[Any]], int],
                   kernels: Sequence[schema.Kernel]) -> SequenceResult:
    """`make_args(rows)` gives the op's arguments with meta tensors; `find(op, args)` the index of a part's kernel,
    which is then in `kernels`. E0201 when the calls depend on the rows or an output has no tensor of its own, E0301
    when the composition does more than call primitives."""
    assert spec.composition is not None
    traced = dispatched(spec.name, spec.composition)
    recordings = [record_reference(traced, make_args(rows)) for rows in (*PROBE_ROWS, 1)]
    for recording in recordings:
        for call in recording.calls:
            _check_call(spec, call)
        if _structure(recording) != _structure(recordings[0]):
            raise _refused(spec, "other calls at another number of rows", "one list of calls for every number of rows")
    return _Builder(spec, recordings[:-1], make_args(PROBE_ROWS[0]), find, kernels).build()


def _check_call(spec: OpSpec, call: CallRecord) -> None:
    name = call.target._schema.name
    if call.target.namespace != "dsv41c" and name not in _VIEWS:
        raise Dsv41cError("DSV41C-E0301", f"op {spec.name}", found=f"{name} in its composition",
                          needed="primitive ops and views only", do="make it part of a primitive op")


def _structure(recording: Recording) -> list[object]:
    """What must not depend on the rows: which calls, on which storages, with which results."""
    def storages(values: Sequence[Any]) -> list[object]:
        return [value.storage if isinstance(value, TensorRecord) else None for value in members(values)]

    return [*((call.target, storages(call.args), storages(call.results)) for call in recording.calls),
            storages(recording.outputs)]


class _Builder:
    """Walks the parallel recordings once; index 0 decides structure, all of them fit the sizes."""

    def __init__(self, spec: OpSpec, recordings: Sequence[Recording], args: Sequence[Any],
                 find: Callable[[str, Sequence[Any]], int], kernels: Sequence[schema.Kernel]) -> None:
        self._spec = spec
        self._recordings = recordings
        self._find = find
        self._kernels = kernels
        self._args = args
        self._locals: list[schema.SequenceLocal] = []
        self._local_of: dict[tuple[TensorRecord, ...], int] = {}  # the tensor in every recording -> local
        self._base_of: dict[int, int] = {}  # storage -> base local
        self._parts: list[schema.Part] = []
        self._slots = ScratchSlots()
        self._slot_of_local: dict[int, int] = {}
        self._slot_of_part: dict[int, int] = {}
        self._written: set[int] = set()  # storages
        self._last_use = _last_uses(recordings[0])

    def build(self) -> SequenceResult:
        first = self._recordings[0]
        self._add_arguments()
        for index, call in enumerate(first.calls):
            if call.target.namespace == "dsv41c":
                self._add_part(index, call)
        self._check_effects()
        *starts, scratch = self._slots.offsets()
        locals_ = tuple(replace(x, offset=starts[self._slot_of_local[i]]) if isinstance(x, schema.TempLocal) else x
                        for i, x in enumerate(self._locals))
        parts = tuple(replace(part, scratch=starts[self._slot_of_part[i]]) if i in self._slot_of_part else part
                      for i, part in enumerate(self._parts))
        return SequenceResult(schema.SequenceBody(locals_, parts), scratch)

    def _add_arguments(self) -> None:
        """Inputs by their tensor positions, then outputs: the part that makes an output writes it directly."""
        slots = [a for a in members(self._args) if a is None or isinstance(a, torch.Tensor)]
        present = [position for position, argument in enumerate(slots) if argument is not None]
        for number, position in enumerate(present):
            self._add_base([r.inputs[number] for r in self._recordings], position)
        made = {r.storage for c in self._recordings[0].calls if c.target.namespace == "dsv41c" for r in c.results}
        for number, record in enumerate(self._recordings[0].outputs):
            if record.storage in self._base_of or record.storage not in made:
                raise _refused(self._spec, f"output {number} that is an input, another output or a view of one",
                               "outputs that are each made by a call")
            self._add_base([r.outputs[number] for r in self._recordings], len(slots) + number)

    def _add_base(self, fits: Sequence[TensorRecord], argument: int) -> None:
        self._remember(fits, schema.ArgLocal(argument, _dtype(fits[0]), *_shape(fits)))
        self._base_of[fits[0].storage] = len(self._locals) - 1

    def _remember(self, fits: Sequence[TensorRecord], local: schema.SequenceLocal) -> int:
        self._locals.append(local)
        self._local_of[tuple(fits)] = len(self._locals) - 1
        return len(self._locals) - 1

    def _add_part(self, index: int, call: CallRecord) -> None:
        twins = [r.calls[index] for r in self._recordings]
        arguments: list[Any] = []
        tensors: list[schema.Argument] = []
        for position, declared in enumerate(call.target._schema.arguments):
            values = [twin.args[position] for twin in twins]
            if isinstance(values[0], TensorRecord):
                arguments.append(TensorShape(values[0].dtype, _shape(values)[0]))
                is_written = declared.alias_info is not None and declared.alias_info.is_write
                local = self._local(index, values)
                tensors.append(schema.InOut(local) if is_written else schema.In(local))
                self._written |= {values[0].storage} if is_written else set()
                continue
            if isinstance(values[0], list):
                lists = list(zip(*values, strict=True))
                arguments.append([TensorShape(fits[0].dtype, _shape(fits)[0]) for fits in lists])
                tensors += [schema.In(self._local(index, fits)) for fits in lists]
                continue
            if any(value != values[0] for value in values):
                raise _refused(self._spec, f"argument {declared.name} of {call.target}, which depends on the rows",
                               "attributes that are the same at every number of rows")
            arguments.append(values[0])
            tensors += [schema.Absent()] if "Tensor" in str(declared.type) else []
        for number in range(len(call.results)):
            tensors.append(schema.Out(self._local(index, [twin.results[number] for twin in twins])))
        kernel = self._find(call.target._schema.name.removeprefix("dsv41c::"), arguments)
        needed = self._kernels[kernel].scratch_bytes
        if needed != 0:
            self._slot_of_part[len(self._parts)] = self._slots.take(needed, index, index)
        self._parts.append(schema.Part(kernel, tuple(tensors), 0))

    def _local(self, index: int, fits: Sequence[TensorRecord]) -> int:
        """The local of a tensor: known, a view of a known storage, or a new temporary."""
        if tuple(fits) in self._local_of:
            return self._local_of[tuple(fits)]
        storage = fits[0].storage
        sizes, strides = _shape(fits)
        if storage in self._base_of:
            offset = fit([f.offset for f in fits], schema.ROWS)
            return self._remember(fits, schema.ViewLocal(self._base_of[storage], _dtype(fits[0]), sizes, strides,
                                                         offset))
        num_bytes = fit([_num_bytes(f) for f in fits], schema.ROWS)
        local = self._remember(fits, schema.TempLocal(_dtype(fits[0]), sizes, strides, 0))
        self._slot_of_local[local] = self._slots.take(num_bytes, index, self._last_use[storage])
        self._base_of[storage] = local
        return local

    def _check_effects(self) -> None:
        """The parts write the arguments that the schema says, and no others."""
        names = [d.name for d, a in zip(self._spec.parsed().arguments, self._args, strict=True)
                 for member in members([a]) if isinstance(member, torch.Tensor)]
        inputs = zip(names, self._recordings[0].inputs, strict=True)
        found = [name for name, record in inputs if record.storage in self._written]
        declared = [name for name in names if name in self._spec.mutates]
        if found != declared:
            raise Dsv41cError("DSV41C-E0301", f"op {self._spec.name}", found=f"a composition that writes {found}",
                              needed=f"{declared}, as the schema says", do="mark written arguments in the schema")


def _last_uses(recording: Recording) -> dict[int, int]:
    """Storage to the last call that touches it."""
    last: dict[int, int] = {}
    for index, call in enumerate(recording.calls):
        for record in members((*call.args, *call.results)):
            if isinstance(record, TensorRecord):
                last[record.storage] = index
    return last


def _shape(fits: Sequence[TensorRecord]) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    dims = range(len(fits[0].sizes))
    return (tuple(fit([r.sizes[d] for r in fits], schema.ROWS) for d in dims),
            tuple(fit([r.strides[d] for r in fits], schema.ROWS) for d in dims))


def _num_bytes(record: TensorRecord) -> int:
    count = record.dtype.itemsize
    for size in record.sizes:
        count *= size
    return count


def _dtype(record: TensorRecord) -> str:
    return str(record.dtype).removeprefix("torch.")


def _refused(spec: OpSpec, found: str, needed: str) -> Dsv41cError:
    return Dsv41cError("DSV41C-E0201", f"body of {spec.name}", found=found, needed=needed,
                       do="rewrite the op's composition")
