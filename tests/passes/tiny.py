"""The programs of the tiny checkpoint with weights and random state, run method by method on a CPU."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from dsv41c.compiler.capture import capture
from dsv41c.compiler.checkpoint.view import CheckpointView
from dsv41c.compiler.config import ModelConfig
from dsv41c.compiler.methods import build_methods
from dsv41c.compiler.model.state import make_state, state_specs
from dsv41c.compiler.model.transformer import Transformer
from dsv41c.compiler.options import CompileOptions
from dsv41c.compiler.program import Program
from dsv41c.compiler.weights import load_weights, weight_recipes
from tests.passes.programs import Values, run

NUMERICS = {"float32 off": ("float32", "off"), "float32 fake": ("float32", "fake"),
            "bfloat16 fake": ("bfloat16", "fake")}
FLOWS = (("decode",), ("encoder", "decoder", "head"))
Outcome = tuple[list[torch.Tensor], Values]


@dataclasses.dataclass(frozen=True)
class Model:
    config: ModelConfig
    program: Program
    weights: Mapping[str, torch.Tensor]
    state: Mapping[str, torch.Tensor]


def load(path: Path, numerics: str) -> Model:
    view = CheckpointView.open(path)
    dtype, quantizers = NUMERICS[numerics]
    options = CompileOptions(dtype=dtype, quantizers=quantizers, max_num_seqs=3, max_model_len=512,
                             max_num_batched_tokens=32).resolved(view.config)
    weights = load_weights(view, weight_recipes(view, options))
    specs = state_specs(view.config, options)
    meta = {name: value.to("meta") for name, value in weights.items()}
    program = build_methods(capture(Transformer(view.config, options, meta, make_state(specs, "meta")),
                                    options.max_num_batched_tokens), options)
    return Model(view.config, program, weights, _random_state(make_state(specs, "cpu"), view.config, options))


def _random_state(state: dict[str, torch.Tensor], config: ModelConfig,
                  options: CompileOptions) -> dict[str, torch.Tensor]:
    """Every slot stands somewhere in its first page; all rings, pages and pairs hold numbers."""
    generator = torch.Generator().manual_seed(1)
    for value in state.values():
        if value.is_floating_point():
            value.copy_(torch.randn(value.shape, generator=generator))
    slots, per_slot = options.max_num_seqs, options.pages_per_slot
    assert per_slot is not None
    state["page_table"][:slots] = torch.arange(slots * per_slot, dtype=torch.int32).view(slots, per_slot)
    state["slot_position"][:slots] = torch.tensor([21, 12, 40][:slots])
    state["slot_token"][:slots] = torch.tensor([5, 17, 33][:slots])
    state["token_ring"].copy_(torch.randint(0, config.engram_compressed_vocab_size, state["token_ring"].shape,
                                            generator=generator))
    return state


def outcome(model: Model, program: Program, flow: tuple[str, ...]) -> Outcome:
    """The results of a flow's methods one after another, and the state behind the last of them."""
    state = {name: value.clone() for name, value in model.state.items()}
    upload = np.array([[0, 0, 7, 0, -1], [0, 1, 8, 0, -1], [0, 2, 11, 2, -1], [1, 0, -1, 0, -1], [3, 0, 0, 4, -1]])
    values = {**model.weights, **state, "upload": torch.from_numpy(upload.astype(np.int32)),
              "keep_rows": torch.tensor([1, 2, 3, -1], dtype=torch.int32),
              "logit_rows": torch.tensor([1, 2], dtype=torch.int32)}
    results: list[torch.Tensor] = []
    for name in flow:
        method = program.methods[name]
        read = {n.meta["name"] for n in method.graph.find_nodes(op="placeholder")}
        given, after = run(method.graph, {name: values[name] for name in read})
        values |= after
        values |= dict(zip(method.bridges_out, given[len(method.outputs):], strict=True))
        results += given
    return results, {name: values[name] for name in state}
