"""Bridges of breaks: sound plans pass both verifiers, each rule has a plan that breaks it, lives are tight."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv41c.runtime.plan import schema as s
from dsv41c.runtime.plan.break_facts import break_facts
from dsv41c.runtime.plan.codec import decode, encode
from dsv41c.runtime.plan.diff import diff
from dsv41c.runtime.plan.structure import structure_differences
from tests.unit.runtime.plan.both_verifiers import assert_same_verdict_on_changes, assert_sound, leaves, outcomes
from tests.unit.runtime.plan.bridge_plan import (
    BROKEN,
    BYTES,
    MALFORMED,
    Step,
    bridge,
    bridge_plan,
    life,
    place,
    recipes,
    to_arena,
)


def document(plan: s.Plan) -> Any:
    return json.loads(encode(plan))


def assert_refused(doc: Any, subject: str, code: str = "DSV41C-E0502") -> None:
    mine, theirs = outcomes(doc)
    assert mine is not None and (mine["code"], mine["subject"]) == (code, subject), mine
    assert mine["where"] and theirs == mine


@settings(max_examples=60, deadline=None)
@given(recipes())
def test_sound_plans_pass_and_keep_their_form(recipe: list[list[Step]]) -> None:
    assert_sound(bridge_plan(recipe))


@pytest.mark.parametrize("name", BROKEN)
def test_broken_rule_is_caught_by_both(name: str) -> None:
    subject, change = BROKEN[name]
    doc = document(bridge_plan())
    change(doc)
    assert_refused(doc, subject)


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_is_refused_by_both(name: str) -> None:
    subject, change = MALFORMED[name]
    doc = document(bridge_plan())
    change(bridge(doc, "m0.v3"))
    assert_refused(doc, subject, "DSV41C-E0501")


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_change_gets_the_same_verdict(data: st.DataObject) -> None:
    doc = document(bridge_plan())
    assert_same_verdict_on_changes(data, doc, leaves(doc))


@settings(max_examples=60, deadline=None)
@given(recipes())
def test_no_bridge_is_spare_and_no_life_too_long(recipe: list[list[Step]]) -> None:
    """Each one in the arena is refused, and so is each that ends a step sooner."""
    plan = bridge_plan(recipe)
    for entry in plan.bridges:
        if not isinstance(entry.life, s.StepsLife):
            continue
        doc = document(plan)
        to_arena(entry.name.split(".")[1], int(entry.life.method[1:]))(doc)
        assert_refused(doc, "output of a break is in the arena")
        doc = document(plan)
        life(entry.name, last=entry.life.last - 1)(doc)
        tight = entry.life.last - entry.life.first == 1
        assert_refused(doc, "bad bridge life" if tight else "bridge is used outside its life")


def test_disjoint_lives_and_methods_share_bytes() -> None:
    """The example uses each way to share, so that a verifier which forbids one is noticed."""
    plan = bridge_plan()
    lives = {b.name: (b.offset, b.life) for b in plan.bridges}
    assert lives["m0.v2"] == (BYTES, s.StepsLife("m0", 1, 2))
    assert lives["m0.v6"] == (BYTES, s.StepsLife("m0", 3, 4))
    assert lives["m1.v0"] == (BYTES, s.StepsLife("m1", 0, 1))
    assert lives["m0.v3"][0] == 2 * BYTES and plan.memory.bridge_bytes == 4 * BYTES
    doc = document(plan)
    place("m0.v7", of="m0.v2")(doc)
    place("m0.v6", of="m0.v7", offset=2 * BYTES)(doc)
    assert outcomes(doc) == (None, None)  # also the other way round


def test_diff_and_structure_name_the_life() -> None:
    plan = bridge_plan()
    doc = document(plan)
    bridge(doc, "m0.v3")["life"]["steps"]["last"] = 3
    other = decode(json.dumps(doc).encode())
    assert diff(plan, other) == ["plan.bridges[m0.v3].life.last: 4 -> 3"]
    (line,) = structure_differences(plan, other)
    assert line.startswith("bridges: ") and "m0.v3" in line


def test_break_facts_are_those_of_the_plan() -> None:
    facts = break_facts(bridge_plan())
    first, second = facts["methods"]
    assert first["segments"] == [{"step": 0, "launches": 1}, {"step": 2, "launches": 1}, {"step": 4, "launches": 1}]
    assert [(b["step"], b["op"], b["reason"], b["launches"]) for b in first["breaks"]] == [
        (1, "mix", "mix needs live host data", ["mix.1"]), (3, "mix", "mix needs live host data", ["mix.3"])]
    assert first["breaks"][0]["bridges"] == [
        {"name": "m0.v2", "offset": BYTES, "bytes": BYTES, "first_step": 1, "last_step": 2},
        {"name": "m0.v3", "offset": 2 * BYTES, "bytes": BYTES, "first_step": 1, "last_step": 4}]
    assert [b["step"] for b in second["breaks"]] == [0]
    assert [b["name"] for b in facts["memory"]["bridges"]] == ["kept", "m0.v2", "m0.v3", "m0.v6", "m0.v7", "m1.v0"]
    assert facts["memory"]["bridges"][0] == {"name": "kept", "offset": 0, "bytes": BYTES, "life": "flow"}
    assert facts["memory"]["bridges"][1]["life"] == {"method": "m0", "first": 1, "last": 2}
