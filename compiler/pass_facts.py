"""What can be said about a pass without a program: order, requirements, the ops it puts in, pattern and guards."""

from __future__ import annotations

import inspect
import sys
from typing import Any

from dsv41c.compiler.ops.catalog import OPS
from dsv41c.compiler.ops.spec import OpSpec
from dsv41c.passes.base import Pass
from dsv41c.passes.engine.fusion import Fusion
from dsv41c.passes.engine.guards import GUARDS
from dsv41c.passes.engine.pattern import patterns_of
from dsv41c.passes.engine.pattern_text import pattern_text


def overview(step: Pass) -> dict[str, Any]:
    """One line of a list of passes."""
    return {"name": step.name, "stage": step.stage.value, "requires": list(step.requires), "commutes": step.commutes,
            "summary": step.summary()}


def details(step: Pass) -> dict[str, Any]:
    """The overview with docstrings and arguments; for a fusion its ops, their patterns and the guards."""
    is_fusion = isinstance(step, Fusion)
    return overview(step) | {
        "module": inspect.cleandoc(sys.modules[type(step).__module__].__doc__ or ""),
        "docstring": inspect.cleandoc(type(step).__doc__ or ""),
        "arguments": dict(step.arguments()),
        "anchor": step.anchor if isinstance(step, Fusion) else None,
        "ops": [_op(OPS[name]) for name in step.ops] if isinstance(step, Fusion) else [],
        "guards": [{"name": g.__name__, "meaning": _first_line(g)} for g in GUARDS] if is_fusion else [],
    }



def _op(spec: OpSpec) -> dict[str, Any]:
    return {"name": spec.name, "schema": spec.name + spec.schema,
            "patterns": [pattern_text(p) for p in patterns_of(spec, OPS)],
            "constraints": [c.text for c in spec.constraints]}


def _first_line(thing: object) -> str:
    return (inspect.getdoc(thing) or "").partition("\n")[0]
