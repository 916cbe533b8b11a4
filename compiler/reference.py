"""PlanReference: the slow oracle that runs a plan by calling every launch's op reference in torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from dsv41c.compiler.ops.catalog import OPS
from dsv41c.compiler.ops.spec import OpSpec
from dsv41c.runtime.plan import schema
from dsv41c.runtime.plan.expr import evaluate


class PlanReference:
    """Runs flows at exact sizes. Values are fresh tensors: storage in the plan is not looked at, so a plan
    that works here and not in the executor has a fault in its memory layout or its kernel bodies."""

    def __init__(self, plan: schema.Plan, weights: Mapping[str, torch.Tensor]) -> None:
        self.plan = plan
        self.weights = [weights[w.name] for w in plan.weights]
        self.state = {s.name: torch.full(s.sizes, s.fill, dtype=_dtype(s.dtype)) for s in plan.state}
        self._bridges = [torch.zeros(b.sizes, dtype=_dtype(b.dtype)) for b in plan.bridges]

    def step(self, upload: np.ndarray, keep_rows: np.ndarray, logit_rows: np.ndarray,
             flow: str) -> dict[str, torch.Tensor]:
        """One step through the named flow; returns the outputs of the last method that ran, by name."""
        inputs = {"upload": upload, "keep_rows": keep_rows, "logit_rows": logit_rows}
        axis_rows = {"rows": len(upload), "kept_rows": len(keep_rows), "output_rows": len(logit_rows)}
        (chosen,) = (f for f in self.plan.flows if f.name == flow)
        outputs: dict[str, torch.Tensor] = {}
        for name in chosen.methods:
            (method,) = (m for m in self.plan.methods if m.name == name)
            if axis_rows[method.axis]:
                outputs = self._run(method, axis_rows[method.axis], inputs)
        return outputs

    def _run(self, method: schema.Method, rows: int, inputs: Mapping[str, np.ndarray]) -> dict[str, torch.Tensor]:
        values: dict[int, torch.Tensor] = {}
        for port in method.inputs:
            values[port.value] = torch.from_numpy(np.ascontiguousarray(inputs[port.name], dtype=np.int32))
        for step in method.steps:
            for launch in step.launches:
                self._launch(method, launch, values, rows)
        return {port.name: values[port.value] for port in method.outputs}

    def _launch(self, method: schema.Method, launch: schema.Launch, values: dict[int, torch.Tensor], rows: int) -> None:
        kernel = self.plan.kernels[launch.kernel]
        spec = OPS[kernel.op.removeprefix("dsv41c::")]
        tensors = [None if isinstance(t, schema.Absent) else t for t in launch.tensors]
        given = [None if t is None else self._value(method, t.value, values, rows)
                 for t in tensors if not isinstance(t, schema.Out)]
        results = self.call(method, launch, spec, _arguments(spec, kernel, given))
        flat = () if results is None else results if isinstance(results, tuple | list) else (results,)
        outs = [t.value for t in tensors if isinstance(t, schema.Out)]
        for index, result in zip(outs, flat, strict=True):
            self._store(method, index, values, result)

    def call(self, method: schema.Method, launch: schema.Launch, spec: OpSpec, arguments: list[Any]) -> Any:
        """One launch by its reference; observers override it to look at what goes in and comes out."""
        return spec.reference(*arguments)

    def _value(self, method: schema.Method, index: int, values: dict[int, torch.Tensor], rows: int) -> torch.Tensor:
        if index in values:
            return values[index]
        value = method.values[index]
        match value.storage:
            case schema.WeightStorage(index=number):
                return self.weights[number]
            case schema.StateStorage(index=number):
                return self.state[self.plan.state[number].name]
            case schema.BridgeStorage(index=number):
                return self._bridges[number]
            case schema.ViewStorage(of=base):
                sizes = [evaluate(s, {method.symbol: rows}) for s in value.sizes]
                return self._value(method, base, values, rows).view(sizes)
        raise KeyError(f"method {method.name}: value {value.name} is read before it is written")

    def _store(self, method: schema.Method, index: int, values: dict[int, torch.Tensor], result: torch.Tensor) -> None:
        values[index] = result
        storage = method.values[index].storage
        if isinstance(storage, schema.BridgeStorage):
            self._bridges[storage.index][: len(result)] = result


def _arguments(spec: OpSpec, kernel: schema.Kernel, tensors: list[torch.Tensor | None]) -> list[Any]:
    """The op's arguments in schema order: tensors of the launch, attributes of the kernel."""
    remaining = iter(tensors)
    attributes = kernel.attributes
    arguments: list[Any] = []
    declared = spec.parsed().arguments
    num_listed = len(tensors) - sum("Tensor" in str(d.type) for d in declared) + 1  # an op has one list at most
    for argument in declared:
        if "List" in str(argument.type):
            arguments.append([next(remaining) for _ in range(num_listed)])
        else:
            is_tensor = "Tensor" in str(argument.type)
            arguments.append(next(remaining) if is_tensor else _plain(attributes[argument.name]))
    return arguments


def _plain(value: schema.Attribute) -> Any:
    if isinstance(value, schema.FloatTag):
        return float.fromhex(value.hex)
    if isinstance(value, schema.DtypeTag):
        return _dtype(value.dtype)
    return value


def _dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype)
    return dtype
