"""The ways to run one model that must agree bit for bit: eager torch, and the executor in each of its modes."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from dsv41c.compiler.checkpoint.view import CheckpointView
from dsv41c.compiler.eager import EagerModel
from dsv41c.compiler.options import CompileOptions
from dsv41c.compiler.weights import load_weights, weight_recipes
from dsv41c.runtime.load import Runtime, load
from tests.damage.seal import change_plan

EXECUTORS = ("bucketed", "exact", "poisoned")
CHECKED = "checked"  # an executor under full checks, which is several times slower


class Engine(Protocol):
    def step(self, upload: np.ndarray, keep_rows: np.ndarray,
             logit_rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]: ...

    def resume(self, slot: int, prefix_length: int, tokens: np.ndarray, pages: np.ndarray) -> None: ...

    def state(self, name: str) -> np.ndarray: ...


@dataclass
class TorchEngine:
    model: EagerModel

    def step(self, upload: np.ndarray, keep_rows: np.ndarray, logit_rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        logits, tokens = self.model.step(upload, keep_rows, logit_rows)
        return logits.numpy().copy(), tokens.numpy().copy()

    def resume(self, slot: int, prefix_length: int, tokens: np.ndarray, pages: np.ndarray) -> None:
        self.model.resume(slot, prefix_length, tokens.tolist(), pages.tolist())

    def state(self, name: str) -> np.ndarray:
        import torch

        tensor = self.model.state[name]
        return (tensor.view(torch.uint16) if tensor.dtype is torch.bfloat16 else tensor).numpy()


@dataclass
class ExecutorEngine:
    runtime: Runtime
    eager: bool

    def step(self, upload: np.ndarray, keep_rows: np.ndarray, logit_rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self.runtime.step(upload, keep_rows, logit_rows, eager=self.eager)
        if not len(logit_rows):
            return np.zeros((0, 1), np.float32), np.zeros(0, np.int32)
        return self.runtime.output("logits").copy(), self.runtime.output("tokens").copy()

    def resume(self, slot: int, prefix_length: int, tokens: np.ndarray, pages: np.ndarray) -> None:
        self.runtime.resume(slot, prefix_length, tokens, pages)

    def state(self, name: str) -> np.ndarray:
        return self.runtime.state(name)


@dataclass
class Subject:
    """One checkpoint compiled under one set of options. Engines are made once and reused: every request starts
    its slot anew, so that what an earlier example left behind must not matter."""

    checkpoint: Path
    artifact: Path
    options: CompileOptions
    view: CheckpointView
    weights: dict[str, Any]

    @classmethod
    def build(cls, checkpoint: Path, artifact: Path, options: CompileOptions) -> Subject:
        view = CheckpointView.open(checkpoint)
        options = options.resolved(view.config)
        return cls(checkpoint, artifact, options, view, load_weights(view, weight_recipes(view, options)))

    @classmethod
    def without_decode(cls, checkpoint: Path, compiled: Path, artifact: Path, options: CompileOptions) -> Subject:
        """Of a copy without the flow `decode`: steps that want every row's logits take the other methods too."""
        shutil.copytree(compiled, artifact, copy_function=os.link)
        change_plan(artifact, lambda plan: plan["flows"].pop(0))
        return cls.build(checkpoint, artifact, options)

    def torch_engine(self, **changes: Any) -> TorchEngine:
        import dataclasses

        config = dataclasses.replace(self.view.config, **changes) if changes else self.view.config
        return TorchEngine(EagerModel(config, self.options, self.weights))

    def executor(self, kind: str) -> ExecutorEngine:
        poison, check = 0xFF if kind == "poisoned" else 0, "full" if kind == CHECKED else None
        return ExecutorEngine(load(self.artifact, poison=poison, check=check), kind == "exact")
