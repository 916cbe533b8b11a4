"""Sequences: every rule has a plan that breaks it, and both verifiers give the same verdict on any change."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv41c.runtime.plan import schema as s
from dsv41c.runtime.plan.codec import encode
from dsv41c.runtime.plan.diff import diff
from dsv41c.runtime.plan.explain import explain
from tests.unit.runtime.plan.both_verifiers import assert_same_verdict_on_changes, assert_sound, leaves, outcomes
from tests.unit.runtime.plan.sequence_plan import BROKEN, FUSED, sequence_plan


def test_sound_sequence_passes_and_keeps_its_form() -> None:
    assert_sound(sequence_plan())


@pytest.mark.parametrize("name", BROKEN)
def test_broken_rule_is_caught_by_both(name: str) -> None:
    subject, change = BROKEN[name]
    doc = json.loads(encode(sequence_plan()))
    change(doc)
    mine, theirs = outcomes(doc)
    assert mine is not None and mine["subject"] == subject, mine
    assert mine["code"] == "DSV41C-E0502" and mine["where"]
    assert theirs == mine


MALFORMED: dict[str, tuple[Callable[[Any], object], str]] = {
    "a constant": (lambda b: b["locals"].append({"kind": "constant", "dtype": "float32", "value": 1}), "unknown case"),
    "unknown key of a part": (lambda b: b["parts"][0].update(color=1), "unknown key"),
    "part without scratch": (lambda b: b["parts"][0].pop("scratch"), "missing key"),
    "unknown use": (lambda b: b["parts"][0]["tensors"].append({"maybe": 1}), "unknown case"),
    "calls": (lambda b: b.update(calls=[]), "unknown key"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_is_refused_by_both(name: str) -> None:
    change, subject = MALFORMED[name]
    doc = json.loads(encode(sequence_plan()))
    change(doc["kernels"][FUSED]["body"])
    mine, theirs = outcomes(doc)
    assert mine is not None and (mine["code"], mine["subject"]) == ("DSV41C-E0501", subject)
    assert theirs == mine


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_any_change_gets_the_same_verdict(data: st.DataObject) -> None:
    """Differential fuzzing of the sequence and its launch: one or two changed leaves."""
    doc = json.loads(encode(sequence_plan()))
    paths = [("kernels", FUSED, *path) for path in leaves(doc["kernels"][FUSED])]
    assert_same_verdict_on_changes(data, doc, paths)


def test_a_part_is_checked_at_the_rows_of_its_sequence() -> None:
    """A kernel that only a sequence runs: its scratch is right at one row and too small at eight."""
    plan = sequence_plan()
    kernels = list(plan.kernels)
    body = kernels[FUSED].body
    assert isinstance(body, s.SequenceBody)
    extra = dataclasses.replace(kernels[1], scratch_bytes=64)  # double needs 128 bytes from five rows on
    first = dataclasses.replace(body.parts[0], kernel=FUSED)
    fused = dataclasses.replace(kernels[FUSED], body=dataclasses.replace(body, parts=(first, *body.parts[1:])))
    doc = json.loads(encode(dataclasses.replace(plan, kernels=(*kernels[:FUSED], extra, fused))))
    for step in doc["methods"][0]["steps"]:
        for launch in next(iter(step.values()))["launches"]:
            launch["kernel"] += launch["kernel"] == FUSED
    mine, theirs = outcomes(doc)
    assert mine is not None and mine["subject"] == "temporary outside the scratch", mine
    assert theirs == mine


def test_diff_names_the_part() -> None:
    plan = sequence_plan()
    kernel = plan.kernels[FUSED]
    assert isinstance(kernel.body, s.SequenceBody)
    parts = (*kernel.body.parts[:2], dataclasses.replace(kernel.body.parts[2], scratch=64))
    changed = dataclasses.replace(kernel, body=dataclasses.replace(kernel.body, parts=parts))
    other = dataclasses.replace(plan, kernels=(*plan.kernels[:FUSED], changed))
    assert diff(plan, other) == ["plan.kernels[3].body.parts[2].scratch: 0 -> 64"]


def test_explain_counts_launches_and_the_kernels_that_they_run() -> None:
    """A sequence is one launch of no single provider; its parts count with theirs."""
    facts = explain(sequence_plan())
    encoder = facts["methods"][0]
    assert encoder["launches"] == 5 and encoder["by_provider"] == {"cpu": 2, "sequence": 1, "aten": 2}
    assert encoder["kernel_runs"] == 7 and encoder["kernel_runs_by_provider"] == {"cpu": 3, "aten": 4}
    assert facts["kernels"]["by_provider"] == {"cpu": 2, "aten": 1, "sequence": 1}

