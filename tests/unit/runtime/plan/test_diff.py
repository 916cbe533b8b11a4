"""diff names what changed and where; equal plans have no lines."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings

from dsv41c.runtime.plan.codec import decode, encode
from dsv41c.runtime.plan.diff import diff
from dsv41c.runtime.plan.schema import FloatTag, Plan, Symbol
from tests.unit.runtime.plan.plan_strategies import example_plan, plans


@settings(max_examples=10, deadline=None)
@given(plans(), plans())
def test_empty_means_equal(a: Plan, b: Plan) -> None:
    assert diff(a, decode(encode(a))) == []
    assert bool(diff(a, b)) == (a != b)


def test_changed_field_has_its_path() -> None:
    plan = example_plan()
    method = replace(plan.methods[0], buckets=(1, 8))
    other = replace(plan, methods=(method, plan.methods[1]))
    assert diff(plan, other) == ["plan.methods[encoder].buckets[1]: 4 -> 8",
                                 "plan.methods[encoder].buckets[2]: removed 8"]


def test_added_and_removed_by_name() -> None:
    plan = example_plan()
    other = replace(plan, symbols=(plan.symbols[0], Symbol("X", 1, 2)))
    assert diff(plan, other) == ["plan.symbols[R]: removed Symbol(name=R, lo=1, hi=8)",
                                 "plan.symbols[X]: added Symbol(name=X, lo=1, hi=2)"]


def test_moved_is_reported() -> None:
    plan = example_plan()
    assert diff(plan, replace(plan, symbols=plan.symbols[::-1])) == ["plan.symbols: order T R -> R T"]


def test_attributes_and_types() -> None:
    plan = example_plan()
    attributes = {**plan.kernels[0].attributes, "exact": 1, "eps": FloatTag.of(1e-5)}
    changed = replace(plan.kernels[0], attributes=attributes)
    lines = diff(plan, replace(plan, kernels=(changed, *plan.kernels[1:])))
    assert len(lines) == 2
    assert lines[0].startswith("plan.kernels[0].attributes.eps.hex: 0x1.0c6f")
    assert lines[1] == "plan.kernels[0].attributes.exact: True -> 1"
