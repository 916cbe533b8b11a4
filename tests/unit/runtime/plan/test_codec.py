"""One plan has one byte string; what is not exactly a plan does not decode."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings

from dsv41c.runtime.plan.codec import canonical_json, decode, digest, encode
from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.runtime.plan.schema import Plan
from tests.unit.runtime.plan import native_plan
from tests.unit.runtime.plan.plan_strategies import example_plan, plans


@settings(max_examples=30, deadline=None)
@given(plans())
def test_round_trip(plan: Plan) -> None:
    data = encode(plan)
    assert decode(data) == plan
    assert encode(decode(data)) == data
    assert digest(decode(data)) == digest(plan)


def test_canonical_form() -> None:
    data = encode(example_plan())
    root = json.loads(data, parse_float=lambda text: pytest.fail(f"a float: {text}"))
    assert data == canonical_json(root)
    assert data.endswith(b"\n") and data.isascii() and b": " not in data


def test_digest_is_stable() -> None:
    """The digest is in artifacts: a change here needs a new plan version."""
    assert digest(example_plan()) == "782fbab8b37e1a4cb2b19dcdc71f9b90378d5cc29c4d62eff871b0c7cc6c74ef"


def test_lists_are_refused_at_encoding() -> None:
    plan = dataclasses.replace(example_plan(), flows=list(example_plan().flows))  # type: ignore[arg-type]
    with pytest.raises(Dsv41cError, match="does not survive encoding"):
        encode(plan)


def _value(doc: Any) -> Any:
    return doc["methods"][0]["values"][0]


BAD: dict[str, tuple[Callable[[Any], object], str, str | None, str]] = {
    "unknown key": (lambda d: d.update(extra=1), "unknown key", "$.extra", "E0501"),
    "unknown nested key": (lambda d: _value(d).update(color="red"), "unknown key",
                           "$.methods[0].values[0].color", "E0501"),
    "unknown key beside a tag": (lambda d: d["kernels"][0]["body"].update(x=1), "unknown key",
                                 "$.kernels[0].body.x", "E0501"),
    "missing key": (lambda d: _value(d).pop("pads"), "missing key", "$.methods[0].values[0]", "E0501"),
    "float": (lambda d: d["symbols"][0].update(lo=1.0), "wrong type", "$.symbols[0].lo", "E0501"),
    "boolean as integer": (lambda d: d["symbols"][0].update(lo=True), "wrong type", "$.symbols[0].lo",
                           "E0501"),
    "integer too large": (lambda d: d["symbols"][0].update(hi=2**63), "integer outside int64",
                          "$.symbols[0].hi", "E0501"),
    "unknown storage": (lambda d: _value(d).update(storage={"heap": 0}), "unknown case",
                        "$.methods[0].values[0].storage", "E0501"),
    "two tags": (lambda d: _value(d).update(storage={"io": 0, "arena": 0}), "unknown case",
                 "$.methods[0].values[0].storage", "E0501"),
    "unknown dtype": (lambda d: _value(d).update(dtype="float16"), "unknown dtype",
                      "$.methods[0].values[0].dtype", "E0501"),
    "unknown pads": (lambda d: _value(d).update(pads="zero"), "unknown pads",
                     "$.methods[0].values[0].pads", "E0501"),
    "decimal float": (lambda d: d["kernels"][0]["attributes"].update(eps={"f": "1e-6"}),
                      "not a hex float", "$.kernels[0].attributes.eps.f", "E0501"),
    "bad attribute": (lambda d: d["kernels"][0]["attributes"].update(eps=[1]), "unknown case",
                      "$.kernels[0].attributes.eps", "E0501"),
    "none without true": (lambda d: d["methods"][0]["steps"][0]["segment"]["launches"][0]["tensors"].append(
        {"none": False}), "wrong type", "$.methods[0].steps[0].segment.launches[0].tensors[5].none", "E0501"),
    "bad option": (lambda d: d["provenance"]["options"].update(x=None), "wrong type",
                   "$.provenance.options.x", "E0501"),
    "not an expression": (lambda d: _value(d)["sizes"].append(["%", 1, 2]), "not an expression",
                          "$.methods[0].values[0].sizes[2]", "E0504"),
    "scratch type": (lambda d: d["methods"][0]["steps"][0]["segment"]["launches"][0].update(scratch="x"),
                     "wrong type", "$.methods[0].steps[0].segment.launches[0].scratch", "E0501"),
    "version before keys": (lambda d: d.update(version=2, extra=1), "unknown plan version", "$.version",
                            "E0501"),
    "feature before keys": (lambda d: d.update(required_features=["collectives"], extra=1),
                            "plan requires an unknown feature", "$.required_features", "E0503"),
}


@pytest.mark.parametrize("name", BAD)
def test_malformed_is_refused_by_both(name: str) -> None:
    change, subject, where, code = BAD[name]
    doc = json.loads(encode(example_plan()))
    change(doc)
    data = json.dumps(doc).encode()
    with pytest.raises(Dsv41cError) as mine:
        decode(data)
    with pytest.raises(Dsv41cError) as theirs:
        native_plan.verify(data)
    assert (mine.value.code, mine.value.subject, mine.value.where) == (f"DSV41C-{code}", subject, where)
    assert theirs.value.to_json() == mine.value.to_json()


@pytest.mark.parametrize("data", [b"", b"{", b"nope", b"[" * 100_000])
def test_not_json(data: bytes) -> None:
    for call in (decode, native_plan.verify):
        with pytest.raises(Dsv41cError) as error:
            call(data)
        assert error.value.code == "DSV41C-E0501"


@pytest.mark.parametrize("data", [b"[]", b"null", b"{}", b'{"version":1.0}', b'{"version":true}'])
def test_not_a_plan(data: bytes) -> None:
    with pytest.raises(Dsv41cError) as mine:
        decode(data)
    with pytest.raises(Dsv41cError) as theirs:
        native_plan.verify(data)
    assert theirs.value.to_json() == mine.value.to_json()
