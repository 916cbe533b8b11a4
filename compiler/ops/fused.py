"""Fused ops: declared by a composition of primitive ops, which gives fake, reference and the body for every target."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from dsv41c.compiler.ops.primitives import PRIMITIVES
from dsv41c.compiler.ops.spec import CaptureClass, Constraint, OpSpec, PadRule
from dsv41c.runtime.plan.errors import Dsv41cError


class Primitives:
    """The namespace `ops` of a composition: `ops.rms_norm(x, weight, eps)`; another name is E0301."""

    def __init__(self, fused: str, calls: Mapping[str, Callable[..., Any]]) -> None:
        self._fused = fused
        self._calls = calls

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)
        if name not in self._calls:
            raise Dsv41cError("DSV41C-E0301", f"op {self._fused}", found=f"{name} in its composition",
                              needed="names of primitive ops", do="declare the op, or compose what exists")
        return self._calls[name]


def fused_op(*, name: str, schema: str, pads: PadRule, composition: Callable[..., Any], tie_order: str | None = None,
             constraints: tuple[Constraint, ...] = ()) -> OpSpec:
    """An op that is `composition(ops, *args)`: calls of primitives on its arguments, `.view(...)` and `.shape`.

    `fake` composes the fakes, `reference` the references; on CPU tensors the op composes what the primitives run.
    """
    references = Primitives(name, {spec.name: spec.reference for spec in PRIMITIVES.values()})

    def reference(*args: Any) -> Any:
        return composition(references, *args)

    return OpSpec(name=name, schema=schema, capture=CaptureClass.CAPTURE, pads=pads, tie_order=tie_order,
                  fake=dispatched(name, composition), reference=reference, composition=composition,
                  constraints=constraints)


def dispatched(name: str, composition: Callable[..., Any]) -> Callable[..., Any]:
    """The composition over `torch.ops.dsv41c`: shapes on fake and meta tensors, the primitives' bodies on the CPU."""
    ops = Primitives(name, {n: _registered(n) for n in PRIMITIVES})

    def call(*args: Any) -> Any:
        return composition(ops, *args)

    return call


def _registered(name: str) -> Callable[..., Any]:
    """Looked up when it is called: the ops are registered after the declarations are made."""
    def call(*args: Any) -> Any:
        return getattr(torch.ops.dsv41c, name).default(*args)

    return call
