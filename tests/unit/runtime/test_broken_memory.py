"""A compiled plan whose memory or order is wrong by a little is refused when it is loaded: nothing of it runs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from damage.mutations import launches
from damage.seal import write_plan
from dsv41c.runtime.load import load
from dsv41c.runtime.plan.errors import Dsv41cError

OPTIONS = {"dtype": "float32", "quantizers": "off", "max_model_len": 64, "max_num_seqs": 4,
           "max_num_batched_tokens": 16, "block_size": 4}


@pytest.fixture(scope="module")
def artifact(compiled_artifact: Callable[..., Path]) -> Path:
    return compiled_artifact("tiny", 0, **OPTIONS)


def decode_of(plan: Any) -> Any:
    return next(method for method in plan["methods"] if method["name"] == "decode")


def order_of(method: Any) -> Any:
    """The list itself."""
    (step,) = method["steps"]
    return step["segment"]["launches"]


def swap_a_launch_and_the_next_that_needs_it(plan: Any) -> None:
    order = order_of(decode_of(plan))
    for i in range(len(order) - 1):
        written = {t["out"] for t in order[i]["tensors"] if "out" in t}
        if written & {t.get("in") for t in order[i + 1]["tensors"]}:
            order[i], order[i + 1] = order[i + 1], order[i]
            return
    raise AssertionError("no launch needs the one before it")


def shrink_a_bridge_by_one_row(plan: Any) -> None:
    plan["bridges"][0]["sizes"][0] -= 1


def shrink_a_port_by_one_row(plan: Any) -> None:
    """The next value in the io region then begins inside it."""
    values = [v for v in decode_of(plan)["values"] if "io" in v["storage"]]
    first, second = sorted(values, key=lambda v: v["storage"]["io"])[:2]
    second["storage"]["io"] = first["storage"]["io"] + 64


def shrink_the_arena(plan: Any) -> None:
    """One line less than the highest value needs."""
    decode_of(plan)["arena_bytes"] -= 64


def drop_a_pad_rule(plan: Any) -> None:
    next(v for v in decode_of(plan)["values"] if v["pads"] != "none")["pads"] = "none"


def drop_the_pad_row_of_the_upload(plan: Any) -> None:
    decode_of(plan)["inputs"][0]["pad"].pop()


def lay_an_output_over_an_input(plan: Any) -> None:
    method = decode_of(plan)
    arena = {i for i, v in enumerate(method["values"]) if "arena" in v["storage"]}
    for launch in launches(method):
        used = {role: [t[role] for t in launch["tensors"] if t.get(role) in arena] for role in ("in", "out")}
        if used["in"] and used["out"]:
            source, result = (method["values"][used[role][0]] for role in ("in", "out"))
            result["storage"] = dict(source["storage"])
            return
    raise AssertionError("no launch from arena to arena")


def read_what_nobody_wrote(plan: Any) -> None:
    order = order_of(decode_of(plan))
    order.pop(next(i for i, launch in enumerate(order) if any("out" in t for t in launch["tensors"]) and i > 3))


@pytest.mark.parametrize("fault", [
    swap_a_launch_and_the_next_that_needs_it, shrink_a_bridge_by_one_row, shrink_a_port_by_one_row, shrink_the_arena,
    drop_a_pad_rule, drop_the_pad_row_of_the_upload, lay_an_output_over_an_input, read_what_nobody_wrote,
], ids=lambda fault: fault.__name__)
def test_the_verifier_refuses_it(artifact: Path, tmp_path: Path, fault: Callable[[Any], None]) -> None:
    """The same edit without the fault loads, so that it is the fault that is refused."""
    copy = shutil.copytree(artifact, tmp_path / "artifact")
    plan = json.loads((copy / "plan.json").read_text())
    write_plan(copy, plan)
    load(copy).close()
    fault(plan)
    write_plan(copy, plan)
    with pytest.raises(Dsv41cError) as failure:
        load(copy)
    assert failure.value.code == "DSV41C-E0502", failure.value


def test_scratch_that_is_planned_one_row_too_small(artifact: Path, tmp_path: Path) -> None:
    """The plan is sound in itself; the kernel that needs more refuses its binding."""
    copy = shutil.copytree(artifact, tmp_path / "artifact")
    plan = json.loads((copy / "plan.json").read_text())
    method = decode_of(plan)
    launch = next(each for each in launches(method)
                  if each["scratch"] is not None and "native" in str(plan["kernels"][each["kernel"]]["body"]["kind"]))
    kernel = plan["kernels"][launch["kernel"]]
    smaller = ["-", kernel["scratch_bytes"], 1]
    for other in plan["methods"]:
        for each in launches(other):
            if each["kernel"] == launch["kernel"]:
                value = other["values"][each["scratch"]]
                value["sizes"] = [["-", value["sizes"][0], 1]]
    kernel["scratch_bytes"] = smaller
    write_plan(copy, plan)
    with pytest.raises(Dsv41cError) as failure:
        load(copy)
    assert failure.value.code in ("DSV41C-E0502", "DSV41C-E0703"), failure.value
    assert "scratch" in str(failure.value)
