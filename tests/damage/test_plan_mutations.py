"""200 changes of a plan's meaning, all digests computed again: refused, or found out by the self-test, or harmless."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from tests.damage.command import Command, check_refusal
from tests.damage.mutations import MUTATIONS
from tests.damage.seal import write_plan

GROUPS, EACH = 20, 10
# A call list of ATen may be legal for the sizes that loading tries and fail on others: E0802, which names the launch.
REFUSED = ("E0501", "E0502", "E0503", "E0504", "E0601", "E0703", "E0802", "E0803")


def outcome(artifact: Path, number: int, sound: str, command: Command) -> str:
    """The code of the refusal, or "harmless" when even the self-test's tokens come out."""
    plan = json.loads(sound)
    what = MUTATIONS[number % len(MUTATIONS)](plan, random.Random(number))
    write_plan(artifact, plan)
    ended = command("check", artifact)
    if ended.code == 0:
        return "harmless"
    code = ended.err.split(" ", 1)[0].removeprefix("DSV41C-")
    assert code in REFUSED, f"{what}\n{ended.err}"
    check_refusal(ended, code)
    return code


@pytest.mark.parametrize("group", range(GROUPS))
def test_mutations(group: int, artifact: Path, command: Command) -> None:
    """Harmless ones exist: a swap of independent launches, a role that claims more than it does."""
    sound = (artifact / "plan.json").read_text()
    found = [outcome(artifact, group * EACH + i, sound, command) for i in range(EACH)]
    assert found.count("harmless") <= 3, found


@pytest.mark.parametrize(("op", "name", "value"), [
    ("take_row_table", "num_slots", 2**31 - 1), ("take_row_table", "num_slots", 5),
    ("sparse_attention", "window_size", -1), ("window_attention", "window_size", 0),
])
def test_attributes_that_reach_beyond_the_state(op: str, name: str, value: int, artifact: Path,
                                                command: Command) -> None:
    """Refused at load: a kernel would read what is not there."""
    plan = json.loads((artifact / "plan.json").read_text())
    kernel = next(k for k in plan["kernels"] if k["op"] == f"dsv41c::{op}")
    kernel["attributes"][name] = value
    write_plan(artifact, plan)
    check_refusal(command("check", artifact), "E0703")
