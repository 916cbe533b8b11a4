"""The tiny model in plain torch becomes the native program: the same calls, the same fusions, the same tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import fx, nn

from dsv41c.compiler.capture import capture
from dsv41c.compiler.checkpoint.view import CheckpointView
from dsv41c.compiler.eager import EagerModel, request_rows
from dsv41c.compiler.methods import build_methods
from dsv41c.compiler.model.state import make_state, state_specs
from dsv41c.compiler.model.transformer import Transformer
from dsv41c.compiler.options import CompileOptions
from dsv41c.compiler.pass_driver import run_passes
from dsv41c.compiler.pipeline import PIPELINE, run_pipeline
from dsv41c.compiler.program import Origin, Program, op_name
from dsv41c.compiler.weights import load_weights, weight_recipes, weight_shapes
from dsv41c.passes.fuse.mega_attention import MegaAttention
from dsv41c.passes.fuse.mega_mhc import MegaMhc
from tests.foreign.plain_model import PlainModel

PROMPT, TOKENS = [3, 10, 17, 24, 31, 38, 45, 52, 59], 12


@pytest.fixture(scope="module")
def view(tiny_checkpoint: Path) -> CheckpointView:
    return CheckpointView.open(tiny_checkpoint)


@pytest.fixture(scope="module")
def options(view: CheckpointView) -> CompileOptions:
    return CompileOptions(dtype="float32").resolved(view.config)


def program(view: CheckpointView, options: CompileOptions, model: type[nn.Module]) -> Program:
    weights = weight_shapes(view, weight_recipes(view, options))
    state = make_state(state_specs(view.config, options, 0, False), "meta")
    return build_methods(capture(model(view.config, options, weights, state), options.max_num_batched_tokens), options)


@pytest.fixture(scope="module")
def native(view: CheckpointView, options: CompileOptions) -> Program:
    return run_pipeline(program(view, options, Transformer)).program


@pytest.fixture(scope="module")
def foreign(view: CheckpointView, options: CompileOptions) -> Program:
    return run_pipeline(program(view, options, PlainModel)).program


def counts(of: Program) -> Mapping[str, Counter[str]]:
    return {name: Counter(op for n in m.graph.nodes if (op := op_name(n))) for name, m in of.methods.items()}


def test_every_call_of_the_native_program_is_raised(native: Program, foreign: Program) -> None:
    """All of them, in every method, with the passes of the pipeline, fusions included."""
    assert counts(foreign) == counts(native)


def test_fusions_match_as_often_as_in_the_native_program(native: Program, foreign: Program) -> None:
    fusions = [p for p in (MegaMhc(), MegaAttention()) if p.name not in {q.name for q in PIPELINE}]
    matches = [[r.num_matches for r in run_passes(p, fusions).records] for p in (native, foreign)]
    assert matches[0] == matches[1] and all(matches[0])


def test_attributes_are_those_of_the_native_program(native: Program, foreign: Program) -> None:
    """Numbers, flags and dtypes of all calls: what a pattern bound wrongly would show here."""
    def attributes(of: Program) -> Counter[str]:
        return Counter(f"{op_name(n)} {[a for a in n.args if not isinstance(a, fx.Node)]}"
                       for m in of.methods.values() for n in m.graph.nodes if op_name(n))

    assert attributes(foreign) == attributes(native)


def test_the_raised_program_generates_the_native_tokens(view: CheckpointView, options: CompileOptions,
                                                        foreign: Program) -> None:
    weights = load_weights(view, weight_recipes(view, options))
    expected = EagerModel(view.config, options, weights).generate(PROMPT, TOKENS)
    state = make_state(state_specs(view.config, options, 0, False), "cpu")
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
