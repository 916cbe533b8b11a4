"""Launches by kind of layer: kinds follow config.json, counts add up, layers that differ are told with their ops."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest

from dsv41c.runtime.manifest import Manifest
from dsv41c.runtime.plan import schema as s
from dsv41c.runtime.plan.layer_launches import layer_kinds, layer_launches, lines, num_kernels

SMALL = {"max_model_len": 64, "block_size": 16, "max_num_seqs": 4, "max_num_batched_tokens": 24}


@pytest.fixture(scope="module")
def artifact(compiled_artifact: Callable[..., Path]) -> Path:
    return compiled_artifact("tiny", 0, **SMALL)


@pytest.fixture(scope="module")
def plan(artifact: Path) -> s.Plan:
    return Manifest.read(artifact).read_plan()


def kind_by_config(config: dict[str, object], layer: int) -> str:
    """The same from config.json alone."""
    kv, index, engram = (config[key] for key in ("kv_source_layer_ids", "index_source_layer_ids", "engram_layer_ids"))
    ratio = config["compress_ratios"][layer]  # type: ignore[index]
    role = ("kv source" if layer in kv else "index source" if layer in index  # type: ignore[operator]
            else "reuse" if ratio else "window")
    return f"{role} + engram" if layer in engram else role  # type: ignore[operator]


def test_kinds_follow_the_config(artifact: Path, plan: s.Plan) -> None:
    config = json.loads((artifact / "config.json").read_text())
    config = config.get("text_config", config)
    kinds = layer_kinds(plan)
    assert kinds == {layer: kind_by_config(config, layer) for layer in range(config["num_hidden_layers"])}
    assert set(kinds.values()) == {"window", "reuse", "kv source", "index source", "kv source + engram"}


def test_every_launch_is_counted_once(plan: s.Plan) -> None:
    """Layers by their steady count, corrected by those that differ, and the extras make the total."""
    facts = layer_launches(plan)
    for method in plan.methods:
        counted = sum(facts["extras"][method.name].values())
        for kind, by_method in facts["layer_kinds"].items():
            wrong = {d["layer"]: d["launches"] for d in facts["different"]
                     if (d["kind"], d["method"]) == (kind, method.name)}
            members = layers_in(facts, kind, method.name)
            counted += sum(wrong.get(layer, by_method.get(method.name, 0)) for layer in members)
        assert counted == facts["total"][method.name] == sum(len(step.launches) for step in method.steps)
        launches = [each for step in method.steps for each in step.launches]
        assert facts["kernels"][method.name] == sum(num_kernels(plan.kernels[each.kernel]) for each in launches)
        assert facts["kernels"][method.name] > facts["total"][method.name]  # fused ops run several


def layers_in(facts: dict[str, object], kind: str, method: str) -> list[int]:
    """tiny: layers 0 to 3 are the encoder's, 4 to 7 the decoder's; decode has all, head has none."""
    bounds = {"decode": range(8), "encoder": range(4), "decoder": range(4, 8)}.get(method, range(0))
    return [layer for layer in facts["layers"][kind] if layer in bounds]  # type: ignore[index]


def test_the_steady_layer_and_what_differs(plan: s.Plan) -> None:
    """Counts are those of the ops; a difference names exactly the ops by which it differs."""
    facts = layer_launches(plan)
    for kind, by_method in facts["layer_kinds"].items():
        for method, count in by_method.items():
            steady = facts["steady"][kind][method]
            assert len(steady["ops"]) == count and steady["layer"] in layers_in(facts, kind, method)
    for other in facts["different"]:
        assert other["launches"] - other["steady"] == sum(other["more"].values()) - sum(other["fewer"].values())
        assert other["more"] or other["fewer"]
    assert set(facts["layer_kinds"]["reuse"]) == {"decode", "encoder", "decoder"}
    assert facts["extras"]["encoder"].keys() == {"embed", "part of layer 4"}
    assert facts["extras"]["head"].keys() == {"entry", "head"}


def test_one_more_launch_makes_a_layer_differ(plan: s.Plan) -> None:
    """Two reuse layers of the decoder: the one with launches more is told, the smaller count is the steady one."""
    number = next(i for i, m in enumerate(plan.methods) if m.name == "decoder")
    (segment,) = plan.methods[number].steps
    place = [one.name.startswith("layers.5.attn.wq_b/") for one in segment.launches].index(True)
    more = 3  # than any fusion that only one of the layers has
    launches = (*segment.launches[:place], *segment.launches[place:place + 1] * more, *segment.launches[place:])
    method = replace(plan.methods[number], steps=(s.Segment(launches),))
    facts = layer_launches(replace(plan, methods=tuple(method if i == number else m
                                                       for i, m in enumerate(plan.methods))))
    (told,) = [d for d in facts["different"] if (d["kind"], d["method"]) == ("reuse", "decoder")]
    assert told["layer"] == 5 and told["steady"] == facts["layer_kinds"]["reuse"]["decoder"]
    assert told["more"]["linear"] == more
    assert told["launches"] - told["steady"] == sum(told["more"].values()) - sum(told["fewer"].values())
    assert any("layer 5 has" in line and f"+{more} linear" in line for line in lines(facts))


@dataclass(frozen=True)
class Sequence:
    """A body of parts, as a launch of several kernels has it."""

    TAG: ClassVar[s.Tag] = s.Tag("sequence", "kind")
    parts: tuple[object, ...]


def test_a_launch_of_several_kernels_counts_them(plan: s.Plan) -> None:
    kernel = plan.kernels[0]
    assert num_kernels(kernel) == 1
    assert num_kernels(replace(kernel, body=Sequence(("a", "b", "c")))) == 3  # type: ignore[arg-type]
