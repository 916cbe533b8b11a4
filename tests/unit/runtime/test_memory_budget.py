"""A memory budget at load: exact to the byte, checked before anything is reserved or mapped."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from dsv41c.runtime.load import load
from dsv41c.runtime.plan.errors import Dsv41cError
from tests.unit.runtime.toy_artifact import write_artifact
from tests.unit.runtime.toy_plan import toy_plan

TOTAL = toy_plan().memory.total_bytes


def refused(artifact: Path, budget: int) -> Dsv41cError:
    with pytest.raises(Dsv41cError, match="DSV41C-E0707") as caught:
        load(artifact, memory_budget=budget)
    assert caught.value.exit_code == 6
    return caught.value


@pytest.mark.parametrize("budget", [TOTAL, TOTAL + 1, 2**63 - 1])
def test_a_budget_that_holds_the_plan_loads(tmp_path: Path, budget: int) -> None:
    with load(write_artifact(tmp_path / "a"), memory_budget=budget) as runtime:
        assert runtime.report()["reserved_bytes"] == TOTAL


@pytest.mark.parametrize("budget", [TOTAL - 1, 1])
def test_a_smaller_budget_says_what_is_missing(tmp_path: Path, budget: int) -> None:
    error = refused(write_artifact(tmp_path / "a"), budget)
    memory = {n.removesuffix("_bytes"): b for n, b in vars(toy_plan().memory).items() if n != "total_bytes"}
    largest = max(memory, key=memory.__getitem__)
    assert f"{TOTAL} bytes, {TOTAL - budget} too many; the largest class is {largest}" in error.found
    assert error.needed == f"a budget of at least {TOTAL} bytes"


def test_nothing_is_reserved_before_the_check(tmp_path: Path) -> None:
    """A plan that no process can hold fails with E0701 when it is reserved: the budget comes before that."""
    plan, huge = toy_plan(), 1 << 48
    memory = dataclasses.replace(plan.memory, arena_bytes=huge,
                                 total_bytes=plan.memory.total_bytes - plan.memory.arena_bytes + huge)
    methods = (dataclasses.replace(plan.methods[0], arena_bytes=huge), *plan.methods[1:])
    artifact = write_artifact(tmp_path / "a", dataclasses.replace(plan, memory=memory, methods=methods))
    with pytest.raises(Dsv41cError, match="DSV41C-E0701"):
        load(artifact)
    refused(artifact, memory.total_bytes - 1)


def test_no_weight_is_mapped_before_the_check(tmp_path: Path) -> None:
    """A broken header of a weight file, of the size that the manifest states, is found when the file is mapped."""
    artifact = write_artifact(tmp_path / "a")
    shard = artifact / "model-00001-of-00002.safetensors"
    shard.write_bytes(b"\xff" * shard.stat().st_size)
    with pytest.raises(Dsv41cError, match="DSV41C-E0703"):
        load(artifact, memory_budget=TOTAL)
    refused(artifact, TOTAL - 1)


def test_a_refused_load_leaves_nothing_mapped(tmp_path: Path) -> None:
    artifact = write_artifact(tmp_path / "a")
    refused(artifact, TOTAL - 1)
    assert str(artifact) not in Path("/proc/self/maps").read_text()


@pytest.mark.parametrize("budget", [0, -1, 2**63, True, 1.5, "8GiB"])
def test_a_bad_budget_is_refused(tmp_path: Path, budget: int) -> None:
    with pytest.raises(Dsv41cError, match="DSV41C-E0901"):
        load(tmp_path, memory_budget=budget)


def test_run_takes_the_budget(compiled_artifact: Callable[..., Path]) -> None:
    from tests.unit.tools.command_line import dsv41c

    artifact = compiled_artifact("tiny", 0, max_model_len=64, block_size=16, max_num_seqs=4, max_num_batched_tokens=24)
    arguments = ("run", artifact, "--prompt-ids", "1,2", "--max-new-tokens", "1", "--json", "--memory-budget")
    loaded = dsv41c(*arguments, "1GiB").json["load"]["reserved_bytes"]
    assert dsv41c(*arguments, str(loaded)).code == 0
    ended = dsv41c(*arguments, str(loaded - 1))
    assert (ended.code, ended.out) == (6, "") and "DSV41C-E0707" in ended.err
