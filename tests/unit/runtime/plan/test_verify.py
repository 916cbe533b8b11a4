"""Every rule of the verifier has a plan that breaks it; Python and C++ refuse it with the same error."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv41c.runtime.plan.codec import decode, encode
from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.runtime.plan.schema import Plan
from dsv41c.runtime.plan.verify import verify
from tests.unit.runtime.plan import native_plan
from tests.unit.runtime.plan.broken_plans import BROKEN
from tests.unit.runtime.plan.plan_strategies import example_plan, plans


def outcome(call: Callable[[bytes], object], data: bytes) -> dict[str, str | None] | None:
    try:
        call(data)
    except Dsv41cError as error:
        return error.to_json()
    return None


def python_verify(data: bytes) -> None:
    verify(decode(data))


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
    data = json.dumps(doc).encode()
    mine, theirs = outcome(python_verify, data), outcome(native_plan.verify, data)
    assert mine is not None and mine["subject"] == subject, mine
    assert mine["code"] in ("DSV41C-E0502", "DSV41C-E0504") and mine["where"]
    assert theirs == mine


def test_unknown_feature_is_named() -> None:
    doc = json.loads(encode(example_plan()))
    doc["required_features"].append("collectives")
    data = json.dumps(doc).encode()
    mine, theirs = outcome(python_verify, data), outcome(native_plan.verify, data)
    assert mine == theirs and mine is not None
    assert (mine["code"], mine["found"]) == ("DSV41C-E0503", "collectives")


def leaves(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(node, dict):
        return [leaf for key, item in node.items() for leaf in leaves(item, (*path, key))]
    if isinstance(node, list):
        return [leaf for i, item in enumerate(node) for leaf in leaves(item, (*path, i))] or [path]
    return [path]


NEW_LEAVES: list[Any] = [-1, 0, 1, 2, 3, 7, 64, 65, 4096, 2**31, 2**62, 2**63 - 1, -(2**63), "T", "R",
                         "rows", "", None, True, [], ["*", "T", 2], ["ceildiv", "rows", 0]]


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_any_change_gets_the_same_verdict(data: st.DataObject) -> None:
    """Differential fuzzing: one or two changed leaves, whatever they are."""
    doc = json.loads(encode(example_plan()))
    for _ in range(data.draw(st.integers(1, 2))):
        *path, last = data.draw(st.sampled_from(leaves(doc)))
        target = doc
        for key in path:
            target = target[key]
        target[last] = copy.deepcopy(data.draw(st.sampled_from(NEW_LEAVES)))
    text = json.dumps(doc).encode()
    assert outcome(python_verify, text) == outcome(native_plan.verify, text)
