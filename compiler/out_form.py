"""Finds the out or in-place form of an ATen call, so that a composite writes where the plan says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from dsv41c.compiler.trace_composite import CallRecord, TensorRecord
from dsv41c.runtime.plan.errors import Dsv41cError

_FACTORY_OPTIONS = ("dtype", "layout", "device", "pin_memory", "memory_format")
_EMPTY = {"aten::empty", "aten::empty_like", "aten::new_empty", "aten::empty_strided", "aten::new_empty_strided"}
_FILLED = {"aten::zeros": 0, "aten::zeros_like": 0, "aten::new_zeros": 0, "aten::ones": 1}
_FILLED_BY_ARGUMENT = {"aten::full": 1, "aten::full_like": 1, "aten::new_full": 2}
_COPIES = {"aten::_to_copy", "aten::clone"}

RESULT = -1  # source index that names the call's result instead of an argument


@dataclass(frozen=True)
class OutCall:
    """`args` in schema order of the emitted op; `sources[i]` is the argument index in the recorded call."""

    op: str
    overload: str
    args: tuple[Any, ...]
    sources: tuple[int | None, ...]
    written: frozenset[int] = frozenset()
    constants: Mapping[int, torch.dtype] = field(default_factory=dict)  # positions that become 0-dim tensors

    def twin(self, call: CallRecord, position: int) -> Any:
        """The value at `position` in a recording of the same call at another number of rows."""
        source = self.sources[position]
        if source is None:
            return self.args[position]
        if source <= RESULT:
            return call.results[RESULT - source]
        return call.args[source]


def out_call(op: str, call: CallRecord) -> OutCall | None:
    """None for views and plain allocations. E0201 when the call has no form that writes a given tensor."""
    name, schema = call.target._schema.name, call.target._schema
    if name in _EMPTY or _is_view(call):
        return None
    if name in _FILLED or name in _FILLED_BY_ARGUMENT:
        value = _FILLED[name] if name in _FILLED else call.args[_FILLED_BY_ARGUMENT[name]]
        return OutCall("aten::fill_", "Scalar", (call.results[0], value), (RESULT, None), frozenset({0}))
    if name in _COPIES:
        return OutCall("aten::copy_", "", (call.results[0], call.args[0], False), (RESULT, 0, None), frozenset({0}))
    if any(a.alias_info is not None and a.alias_info.is_write for a in schema.arguments):
        written = {i for i, a in enumerate(schema.arguments) if a.alias_info is not None and a.alias_info.is_write}
        return _with_constants(call, OutCall(name, schema.overload_name, call.args, tuple(range(len(call.args))),
                                             frozenset(written)), schema.arguments)
    return _functional(op, call)


def _is_view(call: CallRecord) -> bool:
    """Every result lives in the storage of an argument and nothing is written."""
    if any(a.alias_info is not None and a.alias_info.is_write for a in call.target._schema.arguments):
        return False
    storages = {a.storage for a in call.args if isinstance(a, TensorRecord)}
    return bool(call.results) and all(r.storage in storages for r in call.results)


def _functional(op: str, call: CallRecord) -> OutCall:
    for target in _candidates(call.target):
        arguments = target._schema.arguments
        names = [a.name for a in call.target._schema.arguments]
        values, sources, written, results = [], [], set(), 0
        for position, declared in enumerate(arguments):
            if declared.is_out:
                values.append(call.results[results])
                sources.append(RESULT - results)
                written.add(position)
                results += 1
            else:
                source = names.index(declared.name)
                values.append(call.args[source])
                sources.append(source)
        found = OutCall(target._schema.name, target._schema.overload_name, tuple(values), tuple(sources),
                        frozenset(written))
        return _with_constants(call, found, arguments)
    raise Dsv41cError("DSV41C-E0201", f"body of {op}", found=f"{call.target}, which has no out form",
                      needed="calls with an out form", do="rewrite the op's reference")


def _candidates(target: torch._ops.OpOverload) -> list[torch._ops.OpOverload]:
    """Out forms with the same other arguments; a Scalar overload prefers the Tensor form of the same op."""
    if target.namespace != "aten":
        return []
    packet = getattr(torch.ops.aten, target._schema.name.removeprefix("aten::"))
    wanted = [_signature(target._schema, scalar_as_tensor=True), _signature(target._schema, scalar_as_tensor=False)]
    found = []
    for signature in wanted:
        for overload in packet.overloads():
            candidate = getattr(packet, overload)
            if any(a.is_out for a in candidate._schema.arguments) and _signature(candidate._schema, False) == signature:
                found.append(candidate)
    return found


def _signature(schema: torch._C.FunctionSchema, scalar_as_tensor: bool) -> list[tuple[str, str]]:
    result = []
    for argument in schema.arguments:
        if argument.is_out or argument.name in _FACTORY_OPTIONS:
            continue
        kind = str(argument.type)
        is_operand = argument.name in ("other", "self", "min", "max") and kind in ("number", "Scalar")
        result.append((argument.name, "Tensor" if scalar_as_tensor and is_operand else kind))
    return result


def _with_constants(call: CallRecord, found: OutCall, arguments: Any) -> OutCall:
    """Python numbers in Tensor positions become 0-dim constants in the operand's dtype."""
    tensors = [a for a in call.args if isinstance(a, TensorRecord) and a.dtype is not torch.bool]
    constants = {}
    for position, (value, declared) in enumerate(zip(found.args, arguments, strict=True)):
        if isinstance(value, int | float) and not isinstance(value, bool) and str(declared.type) == "Tensor":
            constants[position] = tensors[0].dtype if tensors else call.results[0].dtype
    return OutCall(found.op, found.overload, found.args, found.sources, found.written, constants)
