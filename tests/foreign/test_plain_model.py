"""The tiny model in plain torch becomes the native program: the same calls, the same fusions, the same tokens."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import fx, nn

from dsv41c.compiler.capture import capture
from dsv41c.compiler.checkpoint.view import CheckpointView
from dsv41c.compiler.config import ModelConfig
from dsv41c.compiler.eager import EagerModel, request_rows
from dsv41c.compiler.methods import build_methods
from dsv41c.compiler.model.state import make_state, state_specs
from dsv41c.compiler.model.transformer import Transformer
from dsv41c.compiler.options import CompileOptions
from dsv41c.compiler.pass_driver import Piped
from dsv41c.compiler.pipeline import run_pipeline
from dsv41c.compiler.program import Origin, Program, op_name
from dsv41c.compiler.weights import load_weights, weight_recipes, weight_shapes
from tests.foreign.plain_model import PlainModel

ITERATIONS = 4
PROMPT, TOKENS = [3, 10, 17, 24, 31, 38, 45, 52, 59], 12


@pytest.fixture(scope="module")
def view(tiny_checkpoint: Path) -> CheckpointView:
    return CheckpointView.open(tiny_checkpoint)


@pytest.fixture(scope="module")
def config(view: CheckpointView) -> ModelConfig:
    """Few Sinkhorn iterations: each is six calls at every site of plain torch, and an attribute of the raised op."""
    return dataclasses.replace(view.config, hc_sinkhorn_iters=ITERATIONS)


@pytest.fixture(scope="module")
def options(config: ModelConfig) -> CompileOptions:
    return CompileOptions(dtype="float32").resolved(config)


def piped(view: CheckpointView, config: ModelConfig, options: CompileOptions, model: type[nn.Module]) -> Piped:
    weights = weight_shapes(view, weight_recipes(view, options))
    state = make_state(state_specs(config, options), "meta")
    captured = capture(model(config, options, weights, state), options.max_num_batched_tokens)
    return run_pipeline(build_methods(captured, options))


@pytest.fixture(scope="module")
def native_run(view: CheckpointView, config: ModelConfig, options: CompileOptions) -> Piped:
    return piped(view, config, options, Transformer)


@pytest.fixture(scope="module")
def foreign_run(view: CheckpointView, config: ModelConfig, options: CompileOptions) -> Piped:
    return piped(view, config, options, PlainModel)


@pytest.fixture(scope="module")
def native(native_run: Piped) -> Program:
    return native_run.program


@pytest.fixture(scope="module")
def foreign(foreign_run: Piped) -> Program:
    return foreign_run.program


def counts(of: Program) -> Mapping[str, Counter[str]]:
    return {name: Counter(op for n in m.graph.nodes if (op := op_name(n))) for name, m in of.methods.items()}


def test_every_call_of_the_native_program_is_raised(native: Program, foreign: Program) -> None:
    """All of them, in every method, with the passes of the pipeline, fusions included."""
    assert counts(foreign) == counts(native)


def test_fusions_match_as_often_as_in_the_native_program(native_run: Piped, foreign_run: Piped) -> None:
    """Of each pass; those of stage fuse that match nowhere in the native program are of the draft and the taps."""
    matches = [{r.name: r.num_matches for r in run.records if r.stage == "fuse"} for run in (native_run, foreign_run)]
    assert matches[0] == matches[1]
    assert {n for n, m in matches[0].items() if m == 0} == {"tap_feature", "project_features", "feature_commit",
                                                            "markov_step"}


def test_attributes_are_those_of_the_native_program(native: Program, foreign: Program) -> None:
    """Numbers, flags and dtypes of all calls: what a pattern bound wrongly would show here."""
    def attributes(of: Program) -> Counter[str]:
        return Counter(f"{op_name(n)} {[a for a in n.args if not isinstance(a, fx.Node)]}"
                       for m in of.methods.values() for n in m.graph.nodes if op_name(n))

    assert attributes(foreign) == attributes(native)


def test_the_raised_program_generates_the_native_tokens(view: CheckpointView, config: ModelConfig,
                                                        options: CompileOptions, foreign: Program) -> None:
    weights = load_weights(view, weight_recipes(view, options))
    expected = EagerModel(config, options, weights).generate(PROMPT, TOKENS)
    state = make_state(state_specs(config, options), "cpu")
    graph = foreign.methods["decode"].graph
    run = fx.GraphModule(nn.Module(), graph)
    found: list[int] = []
    upload = request_rows(0, PROMPT, 0, options)
    while len(found) < TOKENS:
        _, tokens = run(*(_given(n, weights, state, upload) for n in graph.nodes if n.op == "placeholder"))
        found.append(int(tokens[-1]))
        upload = request_rows(0, found[-1:], len(PROMPT) + len(found) - 1, options)
    assert found == expected


def _given(node: fx.Node, weights: Mapping[str, torch.Tensor], state: Mapping[str, torch.Tensor],
           upload: np.ndarray) -> torch.Tensor:
    name = node.meta["name"]
    if node.meta["origin"] is Origin.INPUT:
        return torch.from_numpy(upload)
    return state[name] if node.meta["origin"] is Origin.STATE else weights[name]
