"""Rules of one launch: indices, what it may write, its scratch, and that what it writes shares no byte."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from dsv41c.runtime.plan.schema import (
    Absent,
    ArenaStorage,
    CudaBody,
    InOut,
    Launch,
    Method,
    Out,
    Plan,
    StateStorage,
    Symbol,
    WeightStorage,
)
from dsv41c.runtime.plan.verify_arguments import KernelFacts, Operand, check_arguments
from dsv41c.runtime.plan.verify_cuda_arguments import CudaArgumentRules
from dsv41c.runtime.plan.verify_dataflow import launches_of
from dsv41c.runtime.plan.verify_geometry import broken, check_index, launch_place, value_place
from dsv41c.runtime.plan.verify_values import Placed, points_of


def check_launches(
    plan: Plan, method: Method, symbol: Symbol, placed: Sequence[Placed], kernels: Sequence[KernelFacts]
) -> None:
    for index, launch in launches_of(method):
        where = launch_place(method, index, launch)
        check_index(launch.kernel, len(plan.kernels), "kernel", where)
        for argument in launch.tensors:
            if not isinstance(argument, Absent):
                check_index(argument.value, len(method.values), "value", where)
        _check_scratch(method, launch, symbol, placed, kernels[launch.kernel], where)
        _check_written(method, launch, placed, where)
        _check_overlaps(method, launch, placed, where)
        operand = functools.partial(_operand, method, points_of(method, symbol), placed)
        check_arguments(launch.tensors, kernels[launch.kernel], operand, symbol.name, where)
        body = plan.kernels[launch.kernel].body
        if isinstance(body, CudaBody):
            CudaArgumentRules(launch.tensors, operand, symbol.name, where).check(body)


def _operand(method: Method, points: Sequence[int], placed: Sequence[Placed], value: int) -> Operand:
    return Operand(method.values[value].dtype, {rows: placed[value].ranges[rows] for rows in points})


def _check_scratch(
    method: Method, launch: Launch, symbol: Symbol, placed: Sequence[Placed], facts: KernelFacts, where: str
) -> None:
    if launch.scratch is not None:
        check_index(launch.scratch, len(method.values), "scratch", where)
        if not isinstance(method.values[launch.scratch].storage, ArenaStorage):
            raise broken("scratch outside the arena", where, value_place(method, launch.scratch),
                         "a value with arena storage")
    for rows in points_of(method, symbol):
        needed, size = facts.scratch_bytes[rows], 0
        if launch.scratch is not None:
            bytes_ = placed[launch.scratch].ranges[rows]
            size = bytes_.end - bytes_.begin
        if size < needed:
            raise broken("scratch is too small", where, f"{size} bytes at {symbol.name} = {rows}",
                         f"{needed} bytes")


def _check_written(method: Method, launch: Launch, placed: Sequence[Placed], where: str) -> None:
    for argument in launch.tensors:
        if not isinstance(argument, (Out, InOut)):
            continue
        storage, found = placed[argument.value].storage, value_place(method, argument.value)
        if isinstance(storage, WeightStorage):
            raise broken("weight is written", where, found, "weights only as in")
        if isinstance(storage, StateStorage) and isinstance(argument, Out):
            raise broken("state is written as out", where, found, "state as in or inout")


def _check_overlaps(method: Method, launch: Launch, placed: Sequence[Placed], where: str) -> None:
    """Torch and the native kernels both rely on it and check nothing."""
    values = [(a.value, isinstance(a, (Out, InOut))) for a in launch.tensors if not isinstance(a, Absent)]
    if launch.scratch is not None:
        values.append((launch.scratch, True))
    for i, (first, first_written) in enumerate(values):
        for second, second_written in values[i + 1:]:
            if first_written or second_written:
                _check_apart(method, first, second, placed, where)


def _check_apart(method: Method, left: int, right: int, placed: Sequence[Placed], where: str) -> None:
    for point in sorted(placed[left].ranges, reverse=True):
        first, second = placed[left].ranges[point], placed[right].ranges[point]
        if first.overlaps(second):
            raise broken("written tensor overlaps another", where, f"{value_place(method, left)} at {first}",
                         f"no byte of {value_place(method, right)} at {second}")
