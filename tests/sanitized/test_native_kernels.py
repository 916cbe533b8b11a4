"""Native kernels under a hostile plan: it is refused with a typed error, or no kernel leaves its own tensors."""

from __future__ import annotations

import copy
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from dsv41c.compiler.pipeline import PIPELINE
from dsv41c.passes.engine.fusion import Fusion
from dsv41c.runtime.plan.errors import CODES
from tests.damage.seal import write_plan
from tests.sanitized.plan_changes import CHANGES, forge, readers_of_rows
from tests.sanitized_host import SanitizedHost

pytestmark = pytest.mark.sanitized
SIZES = {"max_model_len": 64, "block_size": 16, "max_num_seqs": 4, "max_num_batched_tokens": 24}


@pytest.fixture(scope="module", params=["fused", "alone"])
def artifact(request: pytest.FixtureRequest, compiled_artifact: Callable[..., Path],
             tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kernels as parts of fused launches, or each in a launch of its own. With the fewest buckets, so that it loads
    quickly; its files are links, and `write_plan` replaces them."""
    without = tuple(p.name for p in PIPELINE if isinstance(p, Fusion)) if request.param == "alone" else ()
    sound = compiled_artifact("tiny", 0, **SIZES, dtype="float32", quantizers="off", without=without)
    path = tmp_path_factory.mktemp("native") / "art"
    shutil.copytree(sound, path, copy_function=os.link)
    plan = json.loads((path / "plan.json").read_text())
    for method in plan["methods"]:
        method["buckets"] = method["buckets"][:1]
    write_plan(path, plan)
    return path


@pytest.fixture(scope="module")
def sound_plan(artifact: Path) -> Any:
    return json.loads((artifact / "plan.json").read_text())


def outcome(host: SanitizedHost, artifact: Path, plan: Any, what: str) -> str:
    """The code of the refusal, of a step or of loading, or "runs"."""
    write_plan(artifact, plan)
    try:
        answer = host.ask(artifact)
    except AssertionError as error:
        raise AssertionError(f"{what}\n{error}") from None
    refusals = [answer["refused"]] if answer["refused"] else answer["steps"]
    for refusal in refusals:
        assert refusal["code"] in CODES and refusal["subject"] != "internal failure", (what, refusal)
    return refusals[0]["code"] if refusals else "runs"


def ops_run(plan: Any, launch: Any) -> set[str]:
    """The op of a launch, or those of its parts."""
    kernel = plan["kernels"][launch["kernel"]]
    return {plan["kernels"][part["kernel"]]["op"] for part in kernel["body"].get("parts", ())} or {kernel["op"]}


def test_the_plan_that_is_changed_is_sound(artifact: Path, sound_plan: Any, sanitized_host: SanitizedHost) -> None:
    assert outcome(sanitized_host, artifact, sound_plan, "nothing changed") == "runs"


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), database=None, derandomize=True)
@given(data=st.data())
def test_a_changed_plan_is_refused_or_stays_inside(data: st.DataObject, artifact: Path, sound_plan: Any,
                                                   sanitized_host: SanitizedHost) -> None:
    plan = copy.deepcopy(sound_plan)
    change = data.draw(st.sampled_from(CHANGES))
    what = change(plan, data.draw)
    event(f"{change.__name__}: {outcome(sanitized_host, artifact, plan, what)}")


@pytest.mark.parametrize("fill", [-(2**31), -1, 0, 1, 5, 2**31 - 1])
def test_every_reader_of_rows_stands_a_forged_table(fill: int, artifact: Path, sound_plan: Any,
                                                    sanitized_host: SanitizedHost) -> None:
    """One number in every column of every row, for all native kernels that read row tables at once, also as parts."""
    plan = copy.deepcopy(sound_plan)
    native = {i for i, k in enumerate(plan["kernels"]) if k["body"]["kind"] in ("native", "sequence")}
    ops = set()
    for method in plan["methods"]:
        readers = [(launch, argument) for launch, argument in readers_of_rows(method) if launch["kernel"] in native]
        ops |= {op for launch, _ in readers for op in ops_run(plan, launch)}
        if readers:
            forge(plan, method, [argument for _, argument in readers], fill)
    assert len(ops) >= 12, ops
    assert outcome(sanitized_host, artifact, plan, f"rows of {fill}") == "runs"
