"""Rules of the host's side of a method: ports, their pad rows, and io ranges of methods that run together."""

from __future__ import annotations

from collections.abc import Sequence

from dsv41c.runtime.plan.expr import symbols_of
from dsv41c.runtime.plan.schema import IoStorage, Method, Plan, Port
from dsv41c.runtime.plan.verify_geometry import Range, broken, check_index, value_place
from dsv41c.runtime.plan.verify_tables import check_unique
from dsv41c.runtime.plan.verify_values import Placed, columns_of


def check_ports(method: Method) -> None:
    for what, ports in (("input", method.inputs), ("output", method.outputs)):
        check_unique((port.name for port in ports), f"method {method.name}, {what}")
        for port in ports:
            where = f"method {method.name}, {what} {port.name}"
            check_index(port.value, len(method.values), "value", where)
            if not isinstance(method.values[port.value].storage, IoStorage):
                raise broken("port outside io", where, value_place(method, port.value),
                             "a value with io storage")
            _check_pad(method, port, what, where)


def _check_pad(method: Method, port: Port, what: str, where: str) -> None:
    value = method.values[port.value]
    if any(symbols_of(size) for size in value.sizes[1:]):
        raise broken("port columns are not constant", where, value_place(method, port.value),
                     "constant sizes after the first")
    columns = columns_of(value, method.symbol) if what == "input" else 0
    if len(port.pad) != columns:
        raise broken("pad row of the wrong length", where, f"{len(port.pad)} numbers", f"{columns} numbers")


def check_io(plan: Plan, placed: Sequence[Sequence[Placed]]) -> None:
    """Io ranges are disjoint within a method and between methods of one flow."""
    entries = {
        method.name: [(value_place(method, i), value.hi) for i, value in enumerate(values)
                      if value.root == i and isinstance(value.storage, IoStorage)]
        for method, values in zip(plan.methods, placed, strict=True)
    }
    for method in plan.methods:
        _check_disjoint(entries[method.name])
    for flow in plan.flows:
        _check_disjoint([entry for name in flow.methods for entry in entries[name]])


def _check_disjoint(entries: Sequence[tuple[str, Range]]) -> None:
    ordered = sorted(entries, key=lambda entry: entry[1].begin)
    for (before, first), (where, second) in zip(ordered, ordered[1:], strict=False):
        if first.overlaps(second):
            raise broken("ranges overlap", where, str(second), f"no byte of {before} at {first}")
