"""Rules of order: nothing is read before it is written, in a method and across the methods of a flow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dsv41c.runtime.plan.schema import (
    Absent,
    ArenaStorage,
    BridgeStorage,
    IoStorage,
    Launch,
    Method,
    Out,
    Plan,
)
from dsv41c.runtime.plan.verify_geometry import broken, launch_place, value_place
from dsv41c.runtime.plan.verify_values import Placed


@dataclass
class BridgeUse:
    """Bridges that a method writes, and the place of the first read of those that it needs from before."""

    written: set[int] = field(default_factory=set)
    needed: dict[int, str] = field(default_factory=dict)


def launches_of(method: Method) -> Iterator[tuple[int, Launch]]:
    """All launches of the method in the order they run, numbered through its steps."""
    return enumerate(launch for step in method.steps for launch in step.launches)


def check_dataflow(method: Method, placed: Sequence[Placed]) -> BridgeUse:
    """Arena and io values are written before they are read; outputs are written at all."""
    written = {placed[port.value].root for port in method.inputs}
    use = BridgeUse()
    for index, launch in launches_of(method):
        where = launch_place(method, index, launch)
        for argument in launch.tensors:
            if not isinstance(argument, (Absent, Out)):
                _check_read(method, placed, argument.value, written, use, where)
        for argument in launch.tensors:
            if isinstance(argument, Absent) or type(argument).TAG.name == "in":
                continue
            value = placed[argument.value]
            written.add(value.root)
            if isinstance(value.storage, BridgeStorage):
                use.written.add(value.storage.index)
    for port in method.outputs:
        if placed[port.value].root not in written:
            raise broken("output is never written", f"method {method.name}, output {port.name}",
                         value_place(method, port.value), "a launch that writes it")
    return use


def _check_read(
    method: Method, placed: Sequence[Placed], index: int, written: set[int], use: BridgeUse, where: str
) -> None:
    value = placed[index]
    if isinstance(value.storage, BridgeStorage) and value.storage.index not in use.written:
        use.needed.setdefault(value.storage.index, where)
    if isinstance(value.storage, (ArenaStorage, IoStorage)) and value.root not in written:
        raise broken("value is read before it is written", where, value_place(method, index),
                     "an earlier launch that writes it")


def check_flows(plan: Plan, uses: Sequence[BridgeUse]) -> None:
    """In every flow a bridge is written by an earlier method before it is read."""
    by_name = {method.name: use for method, use in zip(plan.methods, uses, strict=True)}
    for flow in plan.flows:
        written: set[int] = set()
        for name in flow.methods:
            for bridge, where in sorted(by_name[name].needed.items()):
                if bridge not in written:
                    raise broken("bridge is read before it is written", where,
                                 f"bridge {plan.bridges[bridge].name} in flow {flow.name}",
                                 "an earlier method of the flow that writes it")
            written |= by_name[name].written
