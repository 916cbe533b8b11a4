"""Compares what two plans do whatever runs it: launches, segments, breaks and classes of memory; not bodies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

from dsv41c.runtime.plan.diff import show
from dsv41c.runtime.plan.schema import (
    Absent,
    Argument,
    Break,
    BridgeStorage,
    Launch,
    Method,
    Plan,
    StateStorage,
    Step,
    ViewStorage,
    WeightStorage,
)

_T = TypeVar("_T")


def structure_differences(a: Plan, b: Plan) -> Iterator[str]:
    """One line for each difference; none for plans of one structure. Not compared: target, kernel bodies, scratch,
    the arena's layout and size, provenance."""
    for name in ("symbols", "weights", "state", "bridges", "flows"):
        for one, other in _pairs(getattr(a, name), getattr(b, name)):
            if one != other:
                yield f"{name}: {_text(one)} -> {_text(other)}"
    for name in ("state_bytes", "bridge_bytes", "io_bytes"):
        if getattr(a.memory, name) != getattr(b.memory, name):
            yield f"memory.{name}: {getattr(a.memory, name)} -> {getattr(b.memory, name)}"
    methods_a, methods_b = ({m.name: m for m in plan.methods} for plan in (a, b))
    if list(methods_a) != list(methods_b):
        yield f"methods: {' '.join(methods_a)} -> {' '.join(methods_b)}"
    for name in (n for n in methods_a if n in methods_b):
        yield from (f"methods[{name}]{text}" for text in _method(a, b, methods_a[name], methods_b[name]))


def _method(a: Plan, b: Plan, one: Method, other: Method) -> Iterator[str]:
    for field in ("axis", "symbol", "buckets", "ladder"):
        if getattr(one, field) != getattr(other, field):
            yield f".{field}: {show(getattr(one, field))} -> {show(getattr(other, field))}"
    for field in ("inputs", "outputs"):
        ports = [[(p.name, _value(plan, m, p.value), p.pad) for p in getattr(m, field)]
                 for plan, m in ((a, one), (b, other))]
        if ports[0] != ports[1]:
            yield f".{field}: {ports[0]} -> {ports[1]}"
    for number, (step, its) in enumerate(_pairs(one.steps, other.steps)):
        if _step(step) != _step(its):
            yield f".steps[{number}]: {_step(step)} -> {_step(its)}"
        launches = (s.launches if s is not None else () for s in (step, its))
        for place, (launch, its_launch) in enumerate(_pairs(*launches)):
            texts = _launch(a, one, launch), _launch(b, other, its_launch)
            if texts[0] != texts[1]:
                name = (launch or its_launch).name  # type: ignore[union-attr]
                yield f".steps[{number}].launches[{place}] {name}: {_changed(*texts)}"


def _step(step: Step | None) -> str:
    if step is None:
        return "nothing"
    return f"break {step.op}: {step.reason}" if isinstance(step, Break) else "segment"


def _launch(plan: Plan, method: Method, launch: Launch | None) -> Mapping[str, str]:
    """Everything about a launch that has to be equal, by what it is."""
    if launch is None:
        return {}
    kernel = plan.kernels[launch.kernel]
    parts = {"op": kernel.op} | {name: show(value) for name, value in kernel.attributes.items()}
    return parts | {f"tensors[{i}]": _tensor(plan, method, t) for i, t in enumerate(launch.tensors)}


def _tensor(plan: Plan, method: Method, tensor: Argument) -> str:
    return "none" if isinstance(tensor, Absent) else f"{tensor.TAG.name} {_value(plan, method, tensor.value)}"


def _value(plan: Plan, method: Method, index: int) -> str:
    """Its form, and the class of memory it lies in; of weights, state and bridges which one."""
    value = method.values[index]
    storage = value.storage
    while isinstance(storage, ViewStorage):
        storage = method.values[storage.of].storage
    where = storage.TAG.name
    match storage:
        case WeightStorage(index=number):
            where += f" {plan.weights[number].name}"
        case StateStorage(index=number):
            where += f" {plan.state[number].name}"
        case BridgeStorage(index=number):
            where += f" {plan.bridges[number].name}"
    return f"{value.dtype} {show(value.sizes)} {show(value.strides)} {value.pads} in {where}"


def _changed(one: Mapping[str, str], other: Mapping[str, str]) -> str:
    if not one or not other:
        return f"removed {one['op']}" if one else f"added {other['op']}"
    keys = [k for k in {**one, **other} if one.get(k) != other.get(k)]
    return "; ".join(f"{k} {one.get(k, 'nothing')} -> {other.get(k, 'nothing')}" for k in keys)


def _pairs(a: tuple[_T, ...], b: tuple[_T, ...]) -> Iterator[tuple[_T | None, _T | None]]:
    for index in range(max(len(a), len(b))):
        yield (a[index] if index < len(a) else None), (b[index] if index < len(b) else None)


def _text(value: object) -> str:
    return "nothing" if value is None else show(value)
