"""Records the ATen calls of an op's torch reference on meta tensors: the raw material of a composite body."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dsv41c.compiler.tensor_shape import members


@dataclass(frozen=True)
class TensorRecord:
    """One tensor as seen by a call. `storage` numbers storages in order of appearance."""

    storage: int
    dtype: torch.dtype
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    @property
    def is_contiguous(self) -> bool:
        expected = 1
        for size, stride in zip(reversed(self.sizes), reversed(self.strides), strict=True):
            if size != 1 and stride != expected:
                return False
            expected *= size
        return True


@dataclass(frozen=True)
class CallRecord:
    """One dispatched call; tensors in args and results are TensorRecords."""

    target: torch._ops.OpOverload
    args: tuple[Any, ...]
    results: tuple[TensorRecord, ...]


@dataclass
class Recording:
    """inputs (the tensors that are present) and outputs in the op's order."""

    inputs: list[TensorRecord] = field(default_factory=list)
    outputs: list[TensorRecord] = field(default_factory=list)
    calls: list[CallRecord] = field(default_factory=list)


class _Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[CallRecord] = []
        self._alive: list[torch.Tensor] = []  # keeps storages alive, so that their addresses stay unique
        self._storages: dict[int, int] = {}

    def record(self, tensor: torch.Tensor) -> TensorRecord:
        self._alive.append(tensor)
        key = tensor.untyped_storage()._cdata
        number = self._storages.setdefault(key, len(self._storages))
        return TensorRecord(number, tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset())

    def _recorded(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self.record(value)
        if isinstance(value, list | tuple):
            return [self._recorded(v) for v in value]
        return value

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (),
                           kwargs: dict[str, Any] | None = None) -> Any:
        bound = _positional(func, args, kwargs or {})
        recorded = tuple(self._recorded(a) for a in bound)
        result = func(*args, **(kwargs or {}))
        results = result if isinstance(result, tuple | list) else (result,)
        records = tuple(self.record(r) for r in results if isinstance(r, torch.Tensor))
        self.calls.append(CallRecord(func, recorded, records))
        return result


def _positional(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """All schema arguments in order, defaults filled in."""
    declared = func._schema.arguments
    return [args[i] if i < len(args) else kwargs.get(d.name, d.default_value) for i, d in enumerate(declared)]


def record_reference(reference: Callable[..., Any], args: Sequence[Any]) -> Recording:
    """Run `reference` once; tensor arguments (meta), in lists too, become the inputs, returned ones the outputs."""
    recorder = _Recorder()
    recording = Recording()
    for argument in members(args):
        if isinstance(argument, torch.Tensor):
            recording.inputs.append(recorder.record(argument))
    with torch.no_grad(), recorder:
        result = reference(*args)
    results = () if result is None else result if isinstance(result, tuple | list) else (result,)
    recording.outputs = [recorder.record(r) for r in results]
    recording.calls = recorder.calls
    return recording
