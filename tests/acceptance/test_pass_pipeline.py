"""The pipeline on every preset: matches by pass and method, and the launches that are left of the published model."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dsv41c.compiler.checkpoint.make import make_checkpoint
from dsv41c.compiler.checkpoint.view import CheckpointView
from dsv41c.compiler.driver import capture_program
from dsv41c.compiler.model.state import state_specs
from dsv41c.compiler.options import CompileOptions
from dsv41c.compiler.pipeline import PIPELINE
from dsv41c.compiler.weights import weight_recipes, weight_shapes
from dsv41c.passes.base import Match
from dsv41c.runtime.manifest import Manifest
from dsv41c.runtime.plan.explain import launches_of
from dsv41c.runtime.plan.layer_launches import layer_launches
from tests.acceptance.flash_plan import FlashPlan
from tests.acceptance.match_counts import Pattern, expected_matches
from tests.unit.tools.command_line import dsv41c

REUSE = ["mhc_site", "linear_pair", "norm_cast", "linear", "norm_rope_cast", "mega_sparse_attention", "grouped_out",
         "linear", "mhc_site", "mega_gate", "mega_moe"]
STEADY = {"decode": 11, "encoder": 15, "decoder": 15}  # most launches of a layer that makes no keys and no index
EXTRA = 120  # most launches of a decode step outside of the steady pattern
NEEDS_NVCC = pytest.mark.skipif(shutil.which("nvcc") is None, reason="not here: nvcc")


def matches(checkpoint: Path, quantizers: str) -> dict[str, dict[str, int]]:
    """By pass and method, on headers alone: no weight is read, nothing checked between passes and nothing lowered."""
    view = CheckpointView.open(checkpoint)
    options = CompileOptions(quantizers=quantizers, max_num_seqs=4, max_num_batched_tokens=32).resolved(view.config)
    shapes = weight_shapes(view, weight_recipes(view, options))
    specs = state_specs(view.config, options)
    program, found = capture_program(view.config, options, shapes, specs), {}
    for step in PIPELINE:
        result = step.apply(program)
        found[step.name] = dict(Counter(n.method for n in result.notes if isinstance(n, Match)))
        assert result.num_matches == sum(found[step.name].values())
        program = result.program
    return found


@pytest.mark.parametrize(("config", "quantizers"), [
    ("tiny", "fake"), ("tiny", "off"), ("demo", "fake"), ("small", "fake")])
def test_matches_are_exactly_those_of_the_config(config: str, quantizers: str, tmp_path: Path) -> None:
    checkpoint = make_checkpoint(config, tmp_path / "ckpt", headers_only=True).path
    assert matches(checkpoint, quantizers) == expected_matches(checkpoint, quantizers)


@pytest.fixture(scope="module")
def flash(flash_plan: Callable[[str], FlashPlan]) -> FlashPlan:
    return flash_plan("cpu")


def test_matches_of_the_published_model(flash: FlashPlan) -> None:
    notes = json.loads((flash.artifact / "passes.json").read_text())["passes"]
    found = {p["name"]: dict(Counter(m["method"] for m in p["matches"])) for p in notes}
    assert [p["name"] for p in notes] == [step.name for step in PIPELINE]
    assert found == expected_matches(flash.checkpoint, "fake")


@pytest.mark.parametrize("target", ["cpu", pytest.param("sm_90a", marks=NEEDS_NVCC)])
def test_launches_of_the_published_model(target: str, flash_plan: Callable[[str], FlashPlan]) -> None:
    """By hand: `dsv41c checkpoint make --config flash --headers-only -o ckpt`, `dsv41c compile ckpt --plan-only
    --target sm_90a -o art`, `dsv41c explain art --launches`."""
    made = flash_plan(target)
    facts = layer_launches(Manifest.read(made.artifact).read_plan())
    assert {m: len(s["ops"]) <= STEADY[m] for m, s in facts["steady"]["reuse"].items()} == dict.fromkeys(STEADY, True)
    assert all(s["ops"] == REUSE for s in facts["steady"]["reuse"].values())
    assert facts["total"]["decode"] <= 40 * STEADY["decode"] + EXTRA
    assert (made.artifact / "plan.json").stat().st_size < 5_000_000


@NEEDS_NVCC
@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
def test_every_target_runs_the_same_launches(target: str, flash: FlashPlan,
                                             flash_plan: Callable[[str], FlashPlan]) -> None:
    """Launches, segments and classes of memory."""
    ended = dsv41c("diff", flash.artifact, flash_plan(target).artifact, "--structure")
    assert (ended.code, ended.out) == (0, "same\n")


def test_every_launch_of_a_decode_step_has_a_reason(flash: FlashPlan) -> None:
    """Each layer is a steady one but for what config.json says of it; the rest is entry and head."""
    plan = Manifest.read(flash.artifact).read_plan()
    (decode,) = (m for m in plan.methods if m.name == "decode")
    found = Counter(plan.kernels[launch.kernel].op.removeprefix("dsv41c::") for launch in launches_of(decode))
    assert found == decode_launches(_text_config(flash.checkpoint))


def test_explain_names_what_is_outside_of_the_steady_layers(flash: FlashPlan) -> None:
    """Steady layers, those that differ by named ops and the extras by place are all there is."""
    facts = layer_launches(Manifest.read(flash.artifact).read_plan())
    pattern = Pattern.of(_text_config(flash.checkpoint))
    places = {"embed", "entry", "head", f"part of layer {pattern.start}"}
    for method, total in facts["total"].items():
        other = {d["layer"]: d["launches"] for d in facts["different"] if d["method"] == method}
        assert all(d["more"] or d["fewer"] for d in facts["different"] if d["method"] == method)
        extras = facts["extras"][method]
        assert set(extras) <= places
        counted = sum(other.get(layer, counts[method]) for kind, counts in facts["layer_kinds"].items()
                      if method in counts for layer in facts["layers"][kind] if _holds(method, layer, pattern.start))
        assert counted + sum(extras.values()) == total


def _holds(method: str, layer: int, start: int) -> bool:
    return {"decode": True, "encoder": layer < start, "decoder": layer >= start, "head": False}[method]


def _text_config(checkpoint: Path) -> dict[str, Any]:
    data = json.loads((checkpoint / "config.json").read_text())
    return data.get("text_config", data)  # type: ignore[no-any-return]


def decode_launches(config: dict[str, Any]) -> Counter[str]:
    """Launches by op of a decode step, from config.json alone."""
    pattern = Pattern.of(config)
    ratios = config["compress_ratios"][:pattern.layers]
    counts = Counter({op: n * pattern.layers for op, n in Counter(REUSE).items()})
    counts.update(row_table=1, engram_hash=1, embed_expand=1)  # entry
    counts.update(mhc_post=1, mhc_norm=1, head_sample=1)  # the last site's end, and the head
    opened = pattern.opened()["decode"]
    counts.update(mhc_open=opened, mhc_site=-opened, mhc_post=opened - 1)  # before each of them but the first a post
    windows = ratios.count(0)
    counts.update(mega_window_attention=windows, mega_sparse_attention=-windows)
    tables = len(pattern.tables)
    counts.update(engram_gather=tables, linear=tables, engram_gate=tables)
    for source in pattern.sources:
        counts.update(["compress_store" if ratios[source] == 1 else "compress_pairs_store", "index_key_store"])
    candidate = config["candidate_source_layer_id"]
    for index in pattern.indexes:
        # Its query is the partner of wq_b.
        kind = ("index_topk_blocks" if index == candidate else
                "index_topk_within" if index > candidate else "index_topk")
        counts.update({"linear_pair": 1, "linear": -1, "index_query": 1, kind: 1})
    return counts
