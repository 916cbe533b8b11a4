"""Limits of a step are read from a plan: one whose tables contradict each other does not load."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from dsv41c.runtime.load import load
from dsv41c.runtime.plan import schema as s
from dsv41c.runtime.plan.errors import Dsv41cError
from tests.unit.runtime.toy_artifact import write_artifact
from tests.unit.runtime.toy_plan import ROW_TABLE, toy_plan


def with_state(index: int, **changes: object) -> Callable[[s.Plan], s.Plan]:
    """Only the table: the values that show it are changed with it."""

    def change(plan: s.Plan) -> s.Plan:
        entry = dataclasses.replace(plan.state[index], **changes)
        methods = tuple(dataclasses.replace(method, values=tuple(
            dataclasses.replace(v, sizes=entry.sizes) if v.storage == s.StateStorage(index) else v
            for v in method.values)) for method in plan.methods)
        return dataclasses.replace(plan, methods=methods, state=tuple(
            entry if i == index else old for i, old in enumerate(plan.state)))

    return change


def with_block_size(value: s.Attribute | None) -> Callable[[s.Plan], s.Plan]:
    def change(plan: s.Plan) -> s.Plan:
        attributes: dict[str, s.Attribute] = {} if value is None else {"block_size": value}
        kernels = list(plan.kernels)
        kernels[ROW_TABLE] = dataclasses.replace(kernels[ROW_TABLE], attributes=attributes)
        return dataclasses.replace(plan, kernels=tuple(kernels))

    return change


@pytest.mark.parametrize("change", [
    with_state(0, sizes=(5,)), with_state(1, sizes=(3,)), with_state(1, sizes=(16,)), with_state(2, sizes=(3, 4)),
    with_state(2, fill=-1), with_state(2, fill=2**31), with_state(2, fill=2**40),
    with_block_size(0), with_block_size(-8), with_block_size("8"), with_block_size(None),
], ids=["positions", "fewer tokens", "more tokens", "fewer tables", "no pages", "too many pages", "far too many pages",
        "block 0", "block -8", "block text", "no block"])
def test_contradicting_plan_does_not_load(tmp_path: Path, change: Callable[[s.Plan], s.Plan]) -> None:
    with pytest.raises(Dsv41cError, match="DSV41C-E0703"):
        load(write_artifact(tmp_path / "a", change(toy_plan()))).close()
