"""Captures the model, and its draft, once with torch.export and returns graphs with named placeholders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import fx, nn
from torch.export import Dim, export
from torch.export.graph_signature import InputKind

from dsv41c.compiler.aten_form import lowered
from dsv41c.compiler.model.draft import DraftModel
from dsv41c.compiler.ops import catalog as _catalog  # noqa: F401  registers torch.ops.dsv41c
from dsv41c.compiler.program import Origin, is_plain, memory_root, op_name
from dsv41c.runtime.plan.errors import Dsv41cError

_EXAMPLE_ROWS = 13  # any size but 0 and 1, which export would specialise on
_Inputs = Mapping[str, tuple[int, ...]]  # name to the sizes behind the rows
_INPUTS: _Inputs = {"upload": (5,), "keep_rows": (), "logit_rows": ()}
_DRAFT_INPUTS: _Inputs = {"upload": (5,)}


@dataclass(frozen=True)
class Captured:
    """The program uncut. Every row dimension of `graph` is one symbol; outputs are named in order."""

    graph: fx.Graph
    outputs: tuple[str, ...]


def capture(model: nn.Module, max_rows: int) -> Captured:
    """Export on meta tensors: shapes only, no weights. E0201 when export fails.

    `model` takes upload, keep_rows and logit_rows and gives logits and tokens; its buffers lie below `weights` and
    `state`. What it calls besides declared ops stays in the program as ATen calls of one form, for the passes of stage
    raise. E0202 for what could never become an op: ATen calls on state, other calls, constants made from Python values.
    """
    return Captured(_exported(model, _INPUTS, max_rows), ("logits", "tokens"))


def capture_draft(model: DraftModel, max_groups: int) -> Captured:
    """The draft as a program of its own, over groups instead of rows. Errors as for `capture`."""
    return Captured(_exported(model, _DRAFT_INPUTS, max_groups), ("draft_tokens", "confidence"))


def _exported(model: nn.Module, inputs: _Inputs, max_rows: int) -> fx.Graph:
    examples = tuple(torch.zeros(_EXAMPLE_ROWS, *tail, dtype=torch.int32, device="meta") for tail in inputs.values())
    # One named symbol for all row arrays: separate symbols would never be unified by opaque ops.
    # Its range must hold the example; the methods carry their own bounds.
    rows = Dim("rows", min=1, max=max(max_rows, 2 * _EXAMPLE_ROWS))
    try:
        exported = export(model, examples, dynamic_shapes=tuple({0: rows} for _ in examples), strict=False)
    except Exception as error:
        found = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise Dsv41cError("DSV41C-E0201", "capture of the model", found=found,
                          needed="a program free of data-dependent control flow", do="report this as a bug") from error
    graph = _named(exported, inputs)
    if not all(map(is_plain, graph.nodes)):
        graph = lowered(graph)
        _check_calls(graph)
    return graph


def _named(exported: torch.export.ExportedProgram, names: _Inputs) -> fx.Graph:
    """Attach origin and plain name to each placeholder, from the signature."""
    kinds = {spec.arg.name: spec for spec in exported.graph_signature.input_specs}
    inputs = iter(names)
    for node in exported.graph.nodes:
        if node.op != "placeholder":
            continue
        spec = kinds[node.name]
        if spec.kind is InputKind.USER_INPUT:
            node.meta["origin"], node.meta["name"] = Origin.INPUT, next(inputs)
            continue
        kind, _, name = str(spec.target).partition(".")
        if kind not in ("state", "weights"):
            raise _refused(node, f"a tensor made from Python values, {spec.target}", "tensors below weights and state")
        node.meta["origin"] = Origin.STATE if kind == "state" else Origin.WEIGHT
        node.meta["name"] = name
    return exported.graph


def _check_calls(graph: fx.Graph) -> None:
    """ATen calls read weights and values only: effects on state are those of declared ops."""
    for node in graph.nodes:
        target = node.target
        if node.op != "call_function" or is_plain(node):
            continue
        if op_name(node) is None and not (isinstance(target, torch._ops.OpOverload) and target.namespace == "aten"):
            raise _refused(node, f"a call of {target}", "a declared op of dsv41c or an ATen call")
        for source in node.all_input_nodes:
            if op_name(node) is None and memory_root(source).meta.get("origin") is Origin.STATE:
                raise _refused(node, f"a call of {target} on state {memory_root(source).meta['name']}",
                               "declared ops of dsv41c on state")


def _refused(node: fx.Node, found: str, needed: str) -> Dsv41cError:
    return Dsv41cError("DSV41C-E0202", f"node {node.name}", found=found, needed=needed,
                       do="declare the op in compiler/ops, or call a declared one")
