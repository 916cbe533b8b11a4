"""Compares an executor with the plan's references: each launch on its own inputs, and each step bit by bit."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from dsv41c.compiler.ops.catalog import implementation
from dsv41c.compiler.ops.spec import OpSpec
from dsv41c.compiler.reference import PlanReference
from dsv41c.runtime.load import Runtime
from dsv41c.runtime.plan import schema
from dsv41c.runtime.plan.errors import Dsv41cError

# Largest distance of a launch's result from its reference, relative to the reference, over the whole tensor. Sums in
# another order move single values by a step of the result's dtype, or of a quantizer inside the launch.
TOLERANCE = {torch.float32: 2e-3, torch.bfloat16: 2e-2}
# Share of chosen indices that may differ: equal scores up to rounding.
CHOICES = 0.01


@dataclass
class Worst:
    """The largest relative distance so far, and the launch that has it."""

    distance: float = 0.0
    launch: str = ""


class LaunchComparison(PlanReference):
    """Runs the plan with the bodies that the CPU runs. Before each launch's result is used, the op's reference gets
    the same inputs and must give the same result within the tolerance (E0804)."""

    def __init__(self, plan: schema.Plan, weights: Mapping[str, torch.Tensor]) -> None:
        super().__init__(plan, weights)
        self.launches = 0
        self.worst = Worst()

    def call(self, method: schema.Method, launch: schema.Launch, spec: OpSpec, arguments: list[Any]) -> Any:
        written = [i for i, a in enumerate(spec.parsed().arguments) if a.name in spec.mutates]
        copies = [a.clone() if i in written else a for i, a in enumerate(arguments)]
        expected = _flat(spec.reference(*copies)) + [copies[i] for i in written]
        results = implementation(spec)(*arguments)
        found = _flat(results) + [arguments[i] for i in written]
        self.launches += 1
        for number, (one, other) in enumerate(zip(found, expected, strict=True)):
            self._compare(f"{method.name}: {launch.name}", number, one, other)
        return results

    def _compare(self, launch: str, number: int, found: torch.Tensor, expected: torch.Tensor) -> None:
        distance, limit = _distance(found, expected), TOLERANCE.get(expected.dtype, CHOICES)
        if expected.is_floating_point() and distance > self.worst.distance:
            self.worst = Worst(distance, launch)
        if not distance <= limit:
            raise _differs(launch, f"result {number} at a relative distance of {distance:.2e}", f"at most {limit:.0e}")


class StepComparison:
    """An executor for the generation loop: every step runs on both sides and must leave the same bits."""

    def __init__(self, runtime: Runtime, reference: LaunchComparison) -> None:
        self._runtime = runtime
        self.reference = reference
        self.output = runtime.output
        self.steps = 0

    def step(self, upload: Any, keep_rows: Any, logit_rows: Any, eager: bool = False) -> None:
        since = self._runtime.num_records()
        self._runtime.step(upload, keep_rows, logit_rows, eager)
        ran = [record.method for record in self._runtime.records(since)]
        flow = next(f for f in self.reference.plan.flows if set(ran) <= set(f.methods))
        outputs = self.reference.step(upload, keep_rows, logit_rows, flow.name)
        self.steps += 1
        different = {name for name, tensor in self.reference.state.items()
                     if not _same_bits(self._runtime.state(name), tensor)}
        if len(logit_rows):
            different |= {name for name, tensor in outputs.items()
                          if not _same_bits(self._runtime.output(name), tensor)}
        if different:
            raise self._first_different(ran, different)

    def _first_different(self, ran: list[str], different: set[str]) -> Dsv41cError:
        """Between launches the executor shows state and outputs only: the fault is in the named launch or in one
        that it reads from, behind the last launch whose result was right."""
        right = "the start of the step"
        for method in (m for name in dict.fromkeys(ran) for m in self.reference.plan.methods if m.name == name):
            for launch, names in _visible(self.reference.plan, method):
                if wrong := sorted(names & different):
                    return _differs(f"{method.name}: {launch.name}", f"other bits in {', '.join(wrong)} after step "
                                    f"{self.steps - 1}; equal until {right}", "the bits of the same plan run in Python")
                right = f"{method.name}: {launch.name}" if names else right
        raise AssertionError(f"no launch writes {different}")


def _visible(plan: schema.Plan, method: schema.Method) -> Iterator[tuple[schema.Launch, set[str]]]:
    """Names of the states and outputs that each launch writes."""
    outputs = {port.value: port.name for port in method.outputs}
    for step in method.steps:
        for launch in step.launches:
            names = set()
            for tensor in launch.tensors:
                if isinstance(tensor, schema.Out | schema.InOut):
                    storage = method.values[tensor.value].storage
                    if isinstance(storage, schema.StateStorage):
                        names.add(plan.state[storage.index].name)
                    if tensor.value in outputs:
                        names.add(outputs[tensor.value])
            yield launch, names


def _distance(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Relative to the norm of `expected`; for integers the share of elements that differ."""
    if not expected.is_floating_point():
        return float((found != expected).double().mean()) if expected.numel() else 0.0
    a, b = found.double(), expected.double()
    same = (a == b) | (a.isnan() & b.isnan())  # infinities of one sign, NaN of the model's own
    gap = torch.linalg.norm(torch.where(same, 0.0, a - b)).item()
    size = torch.linalg.norm(torch.where(b.isfinite(), b, 0.0)).item()
    return 0.0 if gap == 0.0 else math.inf if math.isnan(gap) else gap / max(size, 1e-30)


def _same_bits(found: np.ndarray, expected: torch.Tensor) -> bool:
    return found.tobytes() == expected.contiguous().view(torch.uint8).numpy().tobytes()


def _flat(results: Any) -> list[torch.Tensor]:
    return [] if results is None else list(results) if isinstance(results, tuple | list) else [results]


def _differs(launch: str, found: str, needed: str) -> Dsv41cError:
    return Dsv41cError("DSV41C-E0804", f"launch {launch}", found=found, needed=needed,
                       do="report it with the artifact's dsv41c.json and the output of `dsv41c doctor`")
