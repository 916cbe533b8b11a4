"""fused_op: the declaration of an op by the composition of primitive ops that it replaces."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

from dsv41c.compiler.ops import attention, dense, draft, engram, hyper_connection, index, moe, quantize, rows, store
from dsv41c.compiler.ops.spec import CaptureClass, Constraint, OpSpec, PadRule

PRIMITIVES = (rows, dense, hyper_connection, quantize, attention, store, index, moe, engram, draft)
REFERENCES = SimpleNamespace(**{spec.name: spec.reference for family in PRIMITIVES for spec in family.SPECS})


def fused_op(*, name: str, schema: str, pads: PadRule, composition: Callable[..., Any], tie_order: str | None = None,
             constraints: tuple[Constraint, ...] = ()) -> OpSpec:
    """The reference composes the primitives' references; what runs on a CPU composes what they run as."""

    def fake(*args: Any) -> Any:
        return composition(torch.ops.dsv41c, *args)

    def reference(*args: Any) -> Any:
        return composition(REFERENCES, *args)

    return OpSpec(name=name, schema=schema, capture=CaptureClass.CAPTURE, pads=pads, tie_order=tie_order, fake=fake,
                  reference=reference, composition=composition, constraints=constraints)
