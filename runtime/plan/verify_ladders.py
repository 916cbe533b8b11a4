"""Rules of ladders: known names, costs in range, and what a method must be like so that its rows can be divided."""

from __future__ import annotations

from collections.abc import Sequence

from dsv41c.runtime.plan.expr import symbols_of
from dsv41c.runtime.plan.schema import (
    ABOVE_LADDER,
    BUCKET_POLICIES,
    MAX_COST_NS,
    BridgeStorage,
    Flow,
    FlowLife,
    Ladder,
    Method,
    Plan,
    Value,
)
from dsv41c.runtime.plan.verify_dataflow import BridgeUse
from dsv41c.runtime.plan.verify_geometry import broken, value_place
from dsv41c.runtime.plan.verify_tables import check_choice


def check_ladders(plan: Plan, uses: Sequence[BridgeUse]) -> None:
    """A split method replays a graph several times, and each replay writes its bridges from their first row on: a
    later replay must not read what an earlier one wrote, and what follows must take rows by number. Blocks of rows
    enter the bridges one behind another."""
    bounds = {symbol.name: symbol.hi for symbol in plan.symbols}
    for method, use in zip(plan.methods, uses, strict=True):
        where = f"method {method.name}"
        _check_ladder(method.ladder, where)
        if method.ladder.above == "split":
            _check_form(method, where)
            _check_bridges(plan, method, use, where)
        if method.ladder.block_rows:
            _check_blocks(plan, method, use, bounds[method.symbol])
    by_name = {method.name: (method, use) for method, use in zip(plan.methods, uses, strict=True)}
    for flow in plan.flows:
        _check_readers(plan, flow, by_name)


def _check_ladder(ladder: Ladder, where: str) -> None:
    check_choice(ladder.policy, BUCKET_POLICIES, "bucket policy", where)
    check_choice(ladder.above, ABOVE_LADDER, "rule above the ladder", where)
    for name in ("replay_ns", "row_ns", "eager_ns"):
        cost = getattr(ladder, name)
        if not 0 <= cost <= MAX_COST_NS:
            raise broken("cost out of range", where, f"{name} {cost}", f"0 to {MAX_COST_NS}")


def _check_form(method: Method, where: str) -> None:
    if method.axis != "kept_rows":
        raise broken("method cannot be split", where, f"axis {method.axis}", "axis kept_rows")
    if not method.buckets:
        raise broken("method cannot be split", where, "no buckets", "at least one bucket")
    if method.outputs:
        raise broken("method cannot be split", where, f"output {method.outputs[0].name}", "no outputs")


def _check_bridges(plan: Plan, method: Method, use: BridgeUse, where: str) -> None:
    for bridge in sorted(use.written & use.needed.keys()):
        raise broken("method cannot be split", where, f"bridge {plan.bridges[bridge].name}, read before it is written",
                     "bridges that it reads or writes, not both")
    for index, value in enumerate(method.values):
        storage = value.storage
        if isinstance(storage, BridgeStorage) and storage.index in use.written and not _is_rows(value, method.symbol):
            raise broken("method cannot be split", value_place(method, index), "a bridge that is not written by rows",
                         f"sizes [{method.symbol}, ...], constant but for the first")


def _is_rows(value: Value, symbol: str) -> bool:
    """Whether it has a row of one size for each of the symbol; that it has no gaps was checked with its storage."""
    return value.sizes[:1] == (symbol,) and all(isinstance(size, int) for size in value.sizes[1:])


def _check_blocks(plan: Plan, method: Method, use: BridgeUse, bound: int) -> None:
    """No output, and bridges of flows that hold the rows of a whole step, or are read as a whole."""
    if method.outputs:
        raise broken("method cannot run in blocks", f"method {method.name}", f"output {method.outputs[0].name}",
                     "no outputs")
    for index, value in enumerate(method.values):
        storage, where = value.storage, value_place(method, index)
        if not isinstance(storage, BridgeStorage) or not isinstance(plan.bridges[storage.index].life, FlowLife):
            continue
        rows = plan.bridges[storage.index].sizes[:1]
        if _is_rows(value, method.symbol):
            if rows < (bound,):
                raise broken("method cannot run in blocks", where, f"a bridge of {rows[0]} rows",
                             f"room for all {bound} rows of a step")
        elif storage.index in use.written or any(method.symbol in symbols_of(size) for size in value.sizes):
            raise broken("method cannot run in blocks", where, "a bridge that is not used by rows",
                         f"sizes [{method.symbol}, ...], constant but for the first")


def _check_readers(plan: Plan, flow: Flow, by_name: dict[str, tuple[Method, BridgeUse]]) -> None:
    moved: set[int] = set()
    regrouped: dict[int, str] = {}  # bridge -> axis of the method that wrote it in blocks, each with groups of its own
    is_split = False
    for name in flow.methods:
        method, use = by_name[name]
        if is_split and method.ladder.above == "split":
            raise broken("two methods of a flow are split", f"flow {flow.name}", f"method {name}", "one of them")
        for bridge in sorted(moved & use.needed.keys()):
            if method.axis != "output_rows":
                raise broken("split rows are read in their old places", f"method {name}",
                             f"bridge {plan.bridges[bridge].name} on axis {method.axis}", "axis output_rows")
        for bridge in sorted(regrouped.keys() & use.needed.keys()):
            if method.axis == regrouped[bridge]:
                raise broken("rows of blocks are read together", f"method {name}",
                             f"bridge {plan.bridges[bridge].name} on axis {method.axis}",
                             "another axis, which takes rows by number")
        if method.ladder.block_rows:
            regrouped |= dict.fromkeys(use.written, method.axis)
        if method.ladder.above == "split":
            is_split = True
            moved |= use.written
