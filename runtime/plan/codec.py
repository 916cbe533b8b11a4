"""Plan to canonical JSON and back: one plan has one byte string, and only well-formed plans decode."""

from __future__ import annotations

import dataclasses
import hashlib
import json

from dsv41c.runtime.plan.decoders import decoder, malformed
from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.runtime.plan.expr import Binary, describe, to_json
from dsv41c.runtime.plan.reflection import tag_of
from dsv41c.runtime.plan.schema import FEATURES, PLAN_VERSION, Plan


def encode(plan: Plan) -> bytes:
    """Canonical JSON of the plan; E0501 or E0504 when the plan would not decode to itself."""
    data = _dump(plan)
    if decode(data) != plan:
        raise malformed("plan does not survive encoding", "$", "a sequence that is no tuple",
                        "tuples in every sequence field")
    return data


def decode(data: bytes) -> Plan:
    """The plan in `data`; an unknown version or feature is named before anything else about its form."""
    try:
        root = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise malformed("plan is not JSON", "$", str(error), "canonical JSON in ASCII") from error
    _check_version(root)
    plan = decoder(Plan)(root, "$")
    assert isinstance(plan, Plan)
    return plan


def digest(plan: Plan) -> str:
    """SHA-256 of the canonical JSON, in hex."""
    return hashlib.sha256(_dump(plan)).hexdigest()


def canonical_json(value: object) -> bytes:
    """Sorted keys, no spaces, ASCII, one newline at the end; floats are refused."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return (text + "\n").encode("ascii")


def check_features(features: tuple[str, ...], path: str) -> None:
    """E0503 on the first feature that this version does not know."""
    for feature in features:
        if feature not in FEATURES:
            raise Dsv41cError(
                "DSV41C-E0503", "plan requires an unknown feature", where=path, found=feature,
                needed=f"one of: {' '.join(FEATURES)}", do="use a dsv41c version that has the feature",
            )


def _check_version(root: object) -> None:
    if not isinstance(root, dict):
        raise malformed("wrong type", "$", describe(root), "an object")
    version = root.get("version")
    if type(version) is not int or version != PLAN_VERSION:
        found = describe(version) if "version" in root else "no version"
        raise malformed("unknown plan version", "$.version", found, f"integer {PLAN_VERSION}")
    features = root.get("required_features")
    if isinstance(features, list):
        check_features(tuple(f for f in features if isinstance(f, str)), "$.required_features")


def _dump(plan: Plan) -> bytes:
    return canonical_json(_plain(plan, "$"))


def _plain(value: object, path: str) -> object:
    if isinstance(value, Binary):
        return to_json(value)
    if isinstance(value, (tuple, list)):
        return [_plain(item, f"{path}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, dict):
        return {key: _plain(item, f"{path}.{key}") for key, item in value.items()}
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _plain_object(value, path)
    raise malformed("wrong type", path, describe(value), "a plan object, integer, boolean or string")


def _plain_object(value: object, path: str) -> object:
    cls = type(value)
    fields = {f.name: _plain(getattr(value, f.name), f"{path}.{f.name}")
              for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    tag = tag_of(cls)
    if tag is None:
        return fields
    if tag.form == "kind":
        return {"kind": tag.name, **fields}
    if tag.form == "object":
        return {tag.name: fields}
    return {tag.name: next(iter(fields.values()), True)}
