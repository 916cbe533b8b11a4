"""Every rule of the verifier has a plan that breaks it; Python and C++ refuse it with the same error."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv41c.runtime.plan.codec import encode
from dsv41c.runtime.plan.schema import Plan
from dsv41c.runtime.plan.verify import verify
from tests.unit.runtime.plan import native_plan
from tests.unit.runtime.plan.both_verifiers import assert_same_verdict_on_changes, leaves, outcomes
from tests.unit.runtime.plan.broken_plans import BROKEN
from tests.unit.runtime.plan.plan_strategies import example_plan, plans


@settings(max_examples=60, deadline=None)
@given(plans())
def test_valid_plans_pass(plan: Plan) -> None:
    verify(plan)
    native_plan.verify(encode(plan))


@pytest.mark.parametrize("name", BROKEN)
def test_broken_rule_is_caught_by_both(name: str) -> None:
    subject, change = BROKEN[name]
    doc = json.loads(encode(example_plan()))
    change(doc)
    mine, theirs = outcomes(doc)
    assert mine is not None and mine["subject"] == subject, mine
    assert mine["code"] in ("DSV41C-E0502", "DSV41C-E0504") and mine["where"]
    assert theirs == mine


def test_unknown_feature_is_named() -> None:
    doc = json.loads(encode(example_plan()))
    doc["required_features"].append("collectives")
    mine, theirs = outcomes(doc)
    assert mine == theirs and mine is not None
    assert (mine["code"], mine["found"]) == ("DSV41C-E0503", "collectives")


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_any_change_gets_the_same_verdict(data: st.DataObject) -> None:
    doc = json.loads(encode(example_plan()))
    assert_same_verdict_on_changes(data, doc, leaves(doc))
