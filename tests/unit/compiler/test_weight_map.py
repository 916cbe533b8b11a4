"""weights.json and constants: what a mapped artifact reads from the checkpoint is what a packed one holds."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import torch

from dsv41c.compiler.checkpoint.view import CheckpointView
from dsv41c.compiler.options import CompileOptions
from dsv41c.compiler.weight_map import map_weights
from dsv41c.compiler.weights import Recipe, load_weight, weight_recipes, weight_shapes


@pytest.fixture(scope="module")
def view(tiny_checkpoint: Path) -> CheckpointView:
    return CheckpointView.open(tiny_checkpoint)


@pytest.fixture(scope="module")
def recipes(view: CheckpointView) -> dict[str, Recipe]:
    return weight_recipes(view, CompileOptions(max_model_len=64).resolved(view.config))


def test_ranges_give_the_bytes_of_every_weight(view: CheckpointView, recipes: dict[str, Recipe]) -> None:
    mapping = map_weights(view, recipes)
    root = json.loads(mapping.data)
    assert set(root["weights"]) == mapping.names == {n for n in recipes if not n.startswith("constants.")}
    shards = [(view.path / file["name"]).read_bytes() for file in root["files"]]
    assert [file["bytes"] for file in root["files"]] == [len(shard) for shard in shards]
    for name, entry in root["weights"].items():
        size = entry["part_bytes"]
        found = b"".join(shards[file][begin : begin + size] for file, begin in entry["parts"])
        assert found == load_weight(view, recipes[name]).view(torch.uint8).numpy().tobytes()
        assert entry["sha256"] == hashlib.sha256(found).hexdigest()


def test_experts_are_one_weight_in_the_order_of_their_numbers(view: CheckpointView, recipes: dict[str, Recipe]) -> None:
    entry = json.loads(map_weights(view, recipes).data)["weights"]["layers.2.ffn.experts.w2.weight"]
    assert entry["source"] == "layers.2.ffn.experts.*.w2.weight"
    begins = [view.tensors[f"layers.2.ffn.experts.{e}.w2.weight"].begin for e in range(8)]
    assert [begin for _, begin in entry["parts"]] == begins


def test_the_map_does_not_depend_on_where_the_checkpoint_lies(view: CheckpointView, recipes: dict[str, Recipe],
                                                              tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(view.path)
    other = CheckpointView.open(tmp_path / "link")
    assert map_weights(other, recipes).data == map_weights(view, recipes).data
    assert str(view.path).encode() not in map_weights(view, recipes).data


def test_constants_have_the_shape_they_are_planned_with(view: CheckpointView, recipes: dict[str, Recipe]) -> None:
    shapes = weight_shapes(view, recipes)
    constants = {name: recipe.constant for name, recipe in recipes.items() if recipe.constant is not None}
    assert len(constants) == 6
    for name, constant in constants.items():
        made = constant.make()
        assert (made.dtype, made.shape) == (shapes[name].dtype, shapes[name].shape), name
