"""Plans given to both verifiers, the Python one and the executor's: they must say the same of any change."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

from dsv41c.runtime.plan.codec import decode, encode
from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.runtime.plan.schema import Plan
from dsv41c.runtime.plan.verify import verify
from tests.unit.runtime.plan import native_plan

Path = tuple[Any, ...]
Outcome = dict[str, str | None] | None
NEW_LEAVES: list[Any] = [-1, 0, 1, 2, 3, 7, 64, 65, 4096, 2**31, 2**62, 2**63 - 1, -(2**63), "T", "R",
                         "rows", "split", "", None, True, [], ["*", "T", 2], ["ceildiv", "rows", 0]]


def outcome(call: Callable[[bytes], object], data: bytes) -> Outcome:
    try:
        call(data)
    except Dsv41cError as error:
        return error.to_json()
    return None


def outcomes(doc: Any) -> tuple[Outcome, Outcome]:
    """Of the Python verifier and of the executor's."""
    data = json.dumps(doc).encode()
    return outcome(lambda given: verify(decode(given)), data), outcome(native_plan.verify, data)


def assert_sound(plan: Plan) -> None:
    """Its form is canonical, and neither verifier refuses it."""
    data = encode(plan)
    assert decode(data) == plan and encode(decode(data)) == data
    verify(plan)
    native_plan.verify(data)


def leaves(node: Any, path: Path = ()) -> list[Path]:
    if isinstance(node, dict):
        return [leaf for key, item in node.items() for leaf in leaves(item, (*path, key))]
    if isinstance(node, list):
        return [leaf for i, item in enumerate(node) for leaf in leaves(item, (*path, i))] or [path]
    return [path]


def assert_same_verdict_on_changes(data: st.DataObject, doc: Any, paths: Sequence[Path]) -> None:
    """Differential fuzzing: one or two of the leaves become something else, whatever it is."""
    for _ in range(data.draw(st.integers(1, 2))):
        *path, last = data.draw(st.sampled_from(paths))
        target = doc
        for key in path:
            target = target[key]
        target[last] = copy.deepcopy(data.draw(st.sampled_from(NEW_LEAVES)))
    mine, theirs = outcomes(doc)
    assert mine == theirs
