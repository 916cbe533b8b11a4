"""The program that an artifact was compiled from, captured again from its options, with its weights and self-tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from dsv41c.compiler.artifact_weights import WeightSource
from dsv41c.compiler.config import ModelConfig
from dsv41c.compiler.driver import capture_program
from dsv41c.compiler.interpret import ProgramModel, Seen
from dsv41c.compiler.model.state import StateSpec, make_state, state_specs
from dsv41c.compiler.options import CompileOptions
from dsv41c.compiler.program import Program
from dsv41c.runtime.manifest import Manifest
from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.runtime.plan.schema import Check


@dataclass(frozen=True)
class Recaptured:
    """`program` is the one before all passes; weights by plan name."""

    program: Program
    options: CompileOptions
    weights: Mapping[str, torch.Tensor]
    state_specs: tuple[StateSpec, ...]
    checks: tuple[Check, ...]

    def model(self, program: Program, seen: Seen | None = None) -> ProgramModel:
        """A program of this artifact, before or after any pass, with fresh state."""
        return ProgramModel(program, self.weights, make_state(self.state_specs, "cpu"), seen)


def recapture(artifact: Path, checkpoint: Path | None = None) -> Recaptured:
    """`checkpoint` is that of an artifact which maps its weights. E0603 for a plan without weights, E0901 when the
    checkpoint is not named, and what reading manifest, plan and weights raises."""
    manifest = Manifest.read(artifact)
    _check_weights(manifest, checkpoint)
    plan, config = manifest.read_plan(), ModelConfig.load(artifact)
    options = CompileOptions.from_json(manifest.options).resolved(config)
    specs = state_specs(config, options)
    weights = dict(WeightSource(artifact, checkpoint).read(plan))
    shapes = {name: torch.empty_like(tensor, device="meta") for name, tensor in weights.items()}
    return Recaptured(capture_program(config, options, shapes, specs), options, weights, specs, plan.checks)


def _check_weights(manifest: Manifest, checkpoint: Path | None) -> None:
    if manifest.fields.get("plan_only"):
        raise Dsv41cError("DSV41C-E0603", f"artifact {manifest.path}", found="a plan without weights and self-test",
                          needed="an artifact with weights", do="compile without --plan-only")
    if "mapped_weights" in manifest.fields.get("required_features", ()) and checkpoint is None:
        raise Dsv41cError("DSV41C-E0901", "option --weights", found="nothing, and an artifact that maps its weights",
                          needed="the checkpoint directory", do="pass --weights DIR")
