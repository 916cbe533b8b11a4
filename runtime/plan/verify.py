"""Refuses a plan that is not safe to run; runtime/cpp/src/verify*.cc has the same rules and messages."""

from __future__ import annotations

from dsv41c.runtime.plan.schema import Plan
from dsv41c.runtime.plan.verify_bridges import check_bridge_use, check_bridges
from dsv41c.runtime.plan.verify_dataflow import check_dataflow, check_flows
from dsv41c.runtime.plan.verify_kernels import check_kernels
from dsv41c.runtime.plan.verify_ladders import check_ladders
from dsv41c.runtime.plan.verify_launches import check_launches
from dsv41c.runtime.plan.verify_lifetimes import check_lifetimes
from dsv41c.runtime.plan.verify_ports import check_io, check_ports
from dsv41c.runtime.plan.verify_tables import check_tables
from dsv41c.runtime.plan.verify_values import place_values


def verify(plan: Plan) -> None:
    """Raises E0502 (a rule is broken), E0503 (unknown feature) or E0504 (an expression has no value)."""
    check_tables(plan)
    check_bridges(plan)
    kernels = check_kernels(plan)
    bounds = {symbol.name: symbol for symbol in plan.symbols}
    placed = [place_values(plan, method, bounds[method.symbol]) for method in plan.methods]
    for method, values in zip(plan.methods, placed, strict=True):
        check_ports(method)
        check_launches(plan, method, bounds[method.symbol], values, kernels)
        check_lifetimes(method, values)
    uses = [check_dataflow(method, values) for method, values in zip(plan.methods, placed, strict=True)]
    for method, values in zip(plan.methods, placed, strict=True):
        check_bridge_use(plan, method, values)
    check_flows(plan, uses)
    check_ladders(plan, uses)
    check_io(plan, placed)
