"""The model with its draft as one program, and runs of its methods on real tensors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, fx

from dsv41c.compiler.checkpoint.view import CheckpointView
from dsv41c.compiler.config import ModelConfig
from dsv41c.compiler.driver import capture_program
from dsv41c.compiler.model.state import StateSpec, make_state, state_specs
from dsv41c.compiler.options import CompileOptions
from dsv41c.compiler.program import Method, Origin, Program
from dsv41c.compiler.weights import load_weights, weight_recipes, weight_shapes


class DraftProgram:
    """`program`: decode, encoder, decoder, head and draft, as captured; `weights` only when `data`."""

    def __init__(self, checkpoint: Path, data: bool = True, **options: object) -> None:
        view = CheckpointView.open(checkpoint, draft=True)
        self.config: ModelConfig = view.config
        chosen = CompileOptions(draft_len=view.config.dspark_block_size, **options)  # type: ignore[arg-type]
        self.options = chosen.resolved(view.config)
        recipes = weight_recipes(view, self.options)
        self.program = capture_program(self.config, self.options, weight_shapes(view, recipes), self.specs)
        self.weights = load_weights(view, recipes) if data else {}

    @property
    def specs(self) -> tuple[StateSpec, ...]:
        return state_specs(self.config, self.options)


class Runner:
    """State of one program and its methods, run on the CPU."""

    def __init__(self, source: DraftProgram, program: Program) -> None:
        self.state = make_state(source.specs, "cpu")
        self._weights, self._program = source.weights, program

    def run(self, method: str, **inputs: Tensor) -> dict[str, Tensor]:
        """Outputs and bridges by name."""
        found = self._program.methods[method]
        with torch.inference_mode():
            made = fx.GraphModule(torch.nn.Module(), found.graph)(*self._arguments(found, inputs))
        return dict(zip((*found.outputs, *found.bridges_out), made, strict=True))

    def prefill(self, upload: Tensor, keep: Tensor, take: Tensor) -> dict[str, Tensor]:
        """Encoder, decoder and head of one step."""
        encoded = self.run("encoder", upload=upload)
        decoded = self.run("decoder", keep_rows=keep, **encoded)
        return self.run("head", logit_rows=take, **decoded)

    def _arguments(self, method: Method, inputs: Mapping[str, Tensor]) -> list[Tensor]:
        sources = {Origin.WEIGHT: lambda n: self._weights[n.removeprefix("weights.")],
                   Origin.STATE: lambda n: self.state[n], Origin.INPUT: inputs.__getitem__,
                   Origin.BRIDGE: inputs.__getitem__}
        nodes = [n for n in method.graph.nodes if n.op == "placeholder"]
        return [sources[n.meta["origin"]](n.meta["name"]) for n in nodes]
