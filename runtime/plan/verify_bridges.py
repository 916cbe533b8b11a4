"""Rules of bridges: no two share bytes while both live, and what a break leaves for later steps lies in one."""

from __future__ import annotations

from collections.abc import Sequence

from dsv41c.runtime.plan.schema import (
    Absent,
    ArenaStorage,
    Argument,
    Break,
    Bridge,
    BridgeStorage,
    In,
    Method,
    Out,
    Plan,
    StepsLife,
)
from dsv41c.runtime.plan.verify_geometry import Range, broken, launch_place, value_place
from dsv41c.runtime.plan.verify_tables import check_range, table_bytes
from dsv41c.runtime.plan.verify_values import Placed


def check_bridges(plan: Plan) -> None:
    """The table: ranges inside the region, lives of steps that there are, and bytes that have one owner at a time."""
    for bridge in plan.bridges:
        check_range(_range(bridge), plan.memory.bridge_bytes, f"bridge {bridge.name}")
        if isinstance(bridge.life, StepsLife):
            _check_life(plan, bridge.life, f"bridge {bridge.name}")
    near: list[Bridge] = []
    for bridge in sorted(plan.bridges, key=lambda each: each.offset):
        near = [other for other in near if _range(other).end > bridge.offset]
        for other in near:
            if _may_meet(other, bridge):
                raise broken("two live bridges overlap", f"bridge {bridge.name}", _range(bridge),
                             f"a begin of at least {_range(other).end}, the end of {other.name}")
        near.append(bridge)


def _range(bridge: Bridge) -> Range:
    return Range("bridge", bridge.offset, bridge.offset + table_bytes(bridge, f"bridge {bridge.name}"))


def _check_life(plan: Plan, life: StepsLife, where: str) -> None:
    method = next((m for m in plan.methods if m.name == life.method), None)
    if method is None:
        raise broken("unknown method", where, f"method {life.method}",
                     f"one of: {' '.join(m.name for m in plan.methods)}")
    if not 0 <= life.first < life.last < len(method.steps):
        raise broken("bad bridge life", where, f"steps {life.first} to {life.last}",
                     f"a break and a later one of the {len(method.steps)} steps of {life.method}")
    if not isinstance(method.steps[life.first], Break):
        raise broken("bad bridge life", where, f"step {life.first}, a segment", "a break as first step")


def _may_meet(one: Bridge, other: Bridge) -> bool:
    """Methods never run at the same time; a flow's bridge lives through all of them."""
    a, b = one.life, other.life
    if not isinstance(a, StepsLife) or not isinstance(b, StepsLife):
        return True
    return a.method == b.method and a.first <= b.last and b.first <= a.last


def check_bridge_use(plan: Plan, method: Method, placed: Sequence[Placed]) -> None:
    """A method uses bridges of its own breaks within their lives, and reads no other memory of an earlier break."""
    rules, index = _Rules(plan, method, placed), 0
    for number, step in enumerate(method.steps):
        for launch in step.launches:
            rules.launch(number, launch.tensors, launch_place(method, index, launch))
            index += 1


class _Rules:
    def __init__(self, plan: Plan, method: Method, placed: Sequence[Placed]) -> None:
        self._plan, self._method, self._placed = plan, method, placed
        self._written: set[int] = set()  # bridges
        self._left: dict[int, int] = {}  # arena value that a break wrote -> its step

    def launch(self, step: int, tensors: Sequence[Argument], where: str) -> None:
        used = [(a, self._placed[a.value]) for a in tensors if not isinstance(a, Absent)]
        for argument, value in used:
            if isinstance(value.storage, BridgeStorage):
                self._check_use(step, argument, value.storage.index, where)
            if not isinstance(argument, Out) and self._left.get(value.root, step) < step:
                raise broken("output of a break is in the arena", where, value_place(self._method, value.root),
                             f"a bridge from step {self._left[value.root]} to step {step}")
        for argument, value in used:
            if isinstance(argument, In):
                continue
            if isinstance(value.storage, BridgeStorage):
                self._written.add(value.storage.index)
            if isinstance(value.storage, ArenaStorage) and isinstance(self._method.steps[step], Break):
                self._left.setdefault(value.root, step)

    def _check_use(self, step: int, argument: Argument, index: int, where: str) -> None:
        bridge = self._plan.bridges[index]
        life = bridge.life
        if not isinstance(life, StepsLife):
            return
        if life.method != self._method.name or not life.first <= step <= life.last:
            raise broken("bridge is used outside its life", where,
                         f"bridge {bridge.name} in step {step} of {self._method.name}",
                         f"steps {life.first} to {life.last} of {life.method}")
        if not isinstance(argument, In) and step != life.first:
            raise broken("bridge is written behind its break", where, f"bridge {bridge.name} in step {step}",
                         f"writes in step {life.first} only")
        if not isinstance(argument, Out) and index not in self._written:
            raise broken("bridge is read before it is written", where, f"bridge {bridge.name}",
                         "an earlier launch of its break that writes it")
