"""Cuts: the published model breaks no graph, and tiny computes the same bits wherever its graphs are broken."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from dsv41c.compiler import breaks
from dsv41c.compiler.artifact import Packed, write_artifact
from dsv41c.compiler.checkpoint.view import CheckpointView
from dsv41c.compiler.driver import capture_program
from dsv41c.compiler.kernel_table import KernelTable
from dsv41c.compiler.lower import Choices, lower
from dsv41c.compiler.model.state import StateSpec, state_specs
from dsv41c.compiler.ops.catalog import OPS
from dsv41c.compiler.options import CompileOptions
from dsv41c.compiler.pipeline import run_pipeline
from dsv41c.compiler.program import Program
from dsv41c.compiler.weights import load_weights, weight_recipes, weight_shapes
from dsv41c.runtime.load import Runtime, load
from dsv41c.runtime.manifest import Manifest
from dsv41c.runtime.plan import schema as s
from dsv41c.runtime.plan.break_facts import break_facts
from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.runtime.plan.explain import bridge_map, launches_of
from dsv41c.runtime.plan.verify import verify
from laws.schedules import Workload, upload_rows
from tests.acceptance.flash_plan import FlashPlan
from tests.acceptance.match_counts import Pattern

OPTIONS = CompileOptions(max_model_len=32, block_size=16, max_num_seqs=2, max_num_batched_tokens=8, dtype="float32")
TOKENS = ((5, 9, 33, 2, 71, 8, 8, 1, 44, 3, 90, 12), (60, 7, 7, 19, 4, 31, 2, 80, 6, 11))
# (request, tokens) of each step: chunks in and above the buckets of prefill, both requests in one, then decode.
STEPS = (((0, 5),), ((0, 3), (1, 1)), ((1, 7),), ((0, 1), (1, 1)), ((0, 1), (1, 1)), ((0, 2),))
DECODE_FROM = 3


# --- the published model ----------------------------------


def test_the_published_model_has_no_break_but_at_tables(flash_plan: Callable[[str], FlashPlan]) -> None:
    """None in decode and decoder, at most one for each Engram layer in encoder; one graph for each run of launches."""
    made = flash_plan("cpu")
    config = json.loads((made.checkpoint / "config.json").read_text())
    tables = len(Pattern.of(config.get("text_config", config)).tables)
    assert tables > 0
    plan = Manifest.read(made.artifact).read_plan()
    methods = {m["name"]: m for m in break_facts(plan)["methods"]}
    assert {name: len(m["breaks"]) for name, m in methods.items() if name != "encoder"} == {
        "decode": 0, "decoder": 0, "head": 0}
    assert len(methods["encoder"]["breaks"]) <= tables
    for method in plan.methods:
        facts = methods[method.name]
        assert len(facts["segments"]) <= len(facts["breaks"]) + 1
        assert sum(x["launches"] for x in facts["segments"]) + sum(len(b["launches"]) for b in facts["breaks"]) == sum(
            1 for _ in launches_of(method))


# --- every op of tiny as a break --------------------------


@dataclass(frozen=True)
class Fused:
    """The fused program of tiny, made once, and what packing any plan of it needs. Its kernels do not depend on the
    cut: every lowering finds them built."""

    program: Program
    specs: tuple[StateSpec, ...]
    view: CheckpointView
    options: CompileOptions
    weights: dict[str, Any]
    kernels: KernelTable = field(default_factory=lambda: KernelTable(OPS))

    @classmethod
    def build(cls, checkpoint: Path) -> Fused:
        view = CheckpointView.open(checkpoint)
        options = OPTIONS.resolved(view.config)
        recipes = weight_recipes(view, options)
        specs = state_specs(view.config, options)
        captured = capture_program(view.config, options, weight_shapes(view, recipes), specs)
        return cls(run_pipeline(captured, (), None).program, specs, view, options, load_weights(view, recipes))

    def plan(self, *forced: str) -> s.Plan:
        options = dataclasses.replace(self.options, breaks=forced)
        provenance = s.Provenance(self.view.model_digest, options.to_json(), "tests")
        with mock.patch("dsv41c.compiler.lower.KernelTable", lambda *_: self.kernels):
            plan = lower(self.program, self.specs, options.max_num_seqs, provenance, Choices(breaks=forced))
        verify(plan)
        return plan


@dataclass(frozen=True)
class Said:
    """Tokens and logits of every step, and the bytes of all state behind the last one."""

    tokens: list[list[int]]
    logits: list[bytes]
    state: dict[str, bytes]


@pytest.fixture(scope="module")
def fused(tiny_checkpoint: Path) -> Fused:
    return Fused.build(tiny_checkpoint)


@pytest.fixture
def said(fused: Fused, tmp_path: Path) -> Iterator[Callable[[s.Plan], list[Said]]]:
    """Of a plan in buckets, then at the exact sizes; what it reports of its steps is that of the plan."""
    def run_plan(plan: s.Plan) -> list[Said]:
        artifact = tmp_path / f"art{len(list(tmp_path.iterdir()))}"
        write_artifact(artifact, plan, fused.view, fused.options, Packed({}, (), fused.weights))
        with load(artifact) as runtime:
            reported = runtime.report()["methods"]
            for method in plan.methods:
                cuts = [isinstance(step, s.Break) for step in method.steps]
                assert reported[method.name]["breaks"] == sum(cuts)
                assert reported[method.name]["segments"] == len(cuts) - sum(cuts)
            return [run_mix(runtime, plan, eager) for eager in (False, True)]

    yield run_plan


def run_mix(runtime: Runtime, plan: s.Plan, eager: bool) -> Said:
    workload, done = Workload(TOKENS, (0, 1), STEPS), [0, 0]
    tokens, logits = [], []
    for number, step in enumerate(STEPS):
        parts, last = [], []
        for request, take in step:
            parts.append(upload_rows(workload, request, done[request], take, OPTIONS.block_size, 2))
            done[request] += take
            last.append(sum(len(p) for p in parts) - 1)
        upload = np.concatenate(parts)
        rows = np.arange(len(upload), dtype=np.int32)
        runtime.step(upload, rows, rows if number >= DECODE_FROM else np.array(last, np.int32), eager)
        tokens.append(runtime.output("tokens").tolist())
        logits.append(runtime.output("logits").tobytes())
    return Said(tokens, logits, {entry.name: runtime.state(entry.name).tobytes() for entry in plan.state})


def ops_of(plan: s.Plan) -> list[str]:
    """Of its launches, in order of first use."""
    kernels = (plan.kernels[launch.kernel] for method in plan.methods for launch in launches_of(method))
    return list(dict.fromkeys(kernel.op.removeprefix("dsv41c::") for kernel in kernels))


def assert_bridged(plan: s.Plan) -> int:
    """What a break makes and a later step reads is in the memory map, alive from the one to the other; how many."""
    known, found = {entry["name"]: entry for entry in bridge_map(plan)}, 0
    for method in plan.methods:
        made: dict[int, int] = {}  # value that a break made -> its step
        for number, step in enumerate(method.steps):
            for launch in step.launches:
                for tensor in launch.tensors:
                    root = None if isinstance(tensor, s.Absent) else root_of(method, tensor.value)
                    if isinstance(tensor, s.Out) and isinstance(step, s.Break):
                        made[root] = number  # type: ignore[index]
                    elif root in made and made[root] < number:
                        found += check_place(plan, method, method.values[root], (made[root], number), known)
    return found


def root_of(method: s.Method, index: int) -> int:
    while isinstance(storage := method.values[index].storage, s.ViewStorage):
        index = storage.of
    return index


def check_place(plan: s.Plan, method: s.Method, value: s.Value, steps: tuple[int, int], known: dict[str, Any]) -> int:
    """1 for a bridge of the break; results have places of their own, in io or in a bridge of the flow."""
    if isinstance(value.storage, s.IoStorage):
        return 0
    assert isinstance(value.storage, s.BridgeStorage), value
    entry = known[plan.bridges[value.storage.index].name]
    if entry["life"] == "flow":
        return 0
    assert entry["life"]["method"] == method.name and entry["bytes"] > 0
    assert entry["life"]["first"] == steps[0] and steps[1] <= entry["life"]["last"]
    assert entry["offset"] + entry["bytes"] <= plan.memory.bridge_bytes
    return 1


def test_forced_breaks_change_no_bit(fused: Fused, said: Callable[[s.Plan], list[Said]]) -> None:
    """Each op of the plan in turn, then all of them at once: every launch is a break."""
    whole = fused.plan()
    assert all(isinstance(step, s.Segment) for method in whole.methods for step in method.steps)
    assert all(isinstance(bridge.life, s.FlowLife) for bridge in whole.bridges)
    wanted, ops = said(whole), ops_of(whole)
    assert len(ops) > 25 and len({json.dumps(one.tokens) for one in wanted}) == 1
    assert all(any(data) for data in wanted[0].logits) and any(wanted[0].state["slot_position"])
    bridged = {}
    for op in ops:
        plan = fused.plan(op)
        cut = [(step.op, len(step.launches)) for m in plan.methods for step in m.steps if isinstance(step, s.Break)]
        assert cut == [(op, 1)] * sum(plan.kernels[launch.kernel].op == f"dsv41c::{op}" for m in plan.methods
                                      for launch in launches_of(m))
        assert ops_of(plan) == ops
        bridged[op] = assert_bridged(plan)
        assert said(plan) == wanted, op
    # What these make ends in io and in state.
    assert {op for op, count in bridged.items() if count == 0} == {"head_sample", "index_key_store"}
    everything = fused.plan(*ops)
    assert not any(isinstance(step, s.Segment) for method in everything.methods for step in method.steps)
    assert assert_bridged(everything) > sum(bridged.values()) / 2
    assert said(everything) == wanted


def test_bridges_share_bytes(fused: Fused) -> None:
    """Of disjoint lives and of different methods; never with those of flows."""
    plan = fused.plan("linear")
    flows = [b for b in bridge_map(plan) if b["life"] == "flow"]
    steps = [b for b in bridge_map(plan) if b["life"] != "flow"]
    end = max(b["offset"] + b["bytes"] for b in flows)
    assert all(b["offset"] >= end for b in steps)
    assert plan.memory.bridge_bytes - end < sum(b["bytes"] for b in steps) / 4
    assert plan.memory.bridge_bytes > fused.plan().memory.bridge_bytes


def test_an_op_that_the_passes_fused_away_is_answered_with_one_of_the_plan(fused: Fused) -> None:
    breaks.check_declared(("moe_route",))
    with pytest.raises(Dsv41cError, match="DSV41C-E0901") as caught:
        breaks.check_used(("linear", "mhc_pos_t", "moe_route"), fused.program)
    assert caught.value.found == "'mhc_pos_t'" and caught.value.do == "did you mean mhc_post?"
    with pytest.raises(Dsv41cError, match="DSV41C-E0901") as caught:
        breaks.check_used(("moe_route",), fused.program)
    assert "moe_route" not in caught.value.needed and "mega_moe" in caught.value.needed
