"""ProgramModel: runs a program, before or after any pass, on torch tensors, node by node with the ops' CPU bodies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

import numpy as np
import torch
from torch import fx

from dsv41c.compiler.program import FLOWS, Method, Origin, Program
from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.runtime.plan.schema import Flow

Seen = Callable[[Method, fx.Node, Any], None]  # the method, a node of it and its value, right after it was made


class ProgramModel:
    """`weights` and `state` by plan name; the state is written in place. One call of `step` is one packed step, as on
    an executor: slots and pages are the caller's, and the first flow that fits the step is taken."""

    def __init__(self, program: Program, weights: Mapping[str, torch.Tensor], state: MutableMapping[str, torch.Tensor],
                 seen: Seen | None = None) -> None:
        self.program = program
        self.state = state
        self._weights = weights
        self._seen = seen

    def step(self, upload: np.ndarray, keep_rows: np.ndarray | None = None,
             logit_rows: np.ndarray | None = None) -> dict[str, torch.Tensor]:
        """upload int32 `[T, 5]`; None keeps or gives every row. The outputs of the last method, by name: float32
        `logits` [L, V] and int32 `tokens` [L]; nothing when no logits are wanted. E0801 when no flow fits."""
        everything = np.arange(len(upload), dtype=np.int32)
        keep, logit = (everything if rows is None else rows for rows in (keep_rows, logit_rows))
        given = {"upload": upload, "keep_rows": keep, "logit_rows": logit}
        tensors = {n: torch.from_numpy(np.ascontiguousarray(x, dtype=np.int32)) for n, x in given.items()}
        rows = {"rows": len(upload), "kept_rows": len(keep), "output_rows": len(logit)}
        all_rows = len(keep) == len(upload) and np.array_equal(logit, everything)
        results: dict[str, torch.Tensor] = {}
        bridges: dict[str, torch.Tensor] = {}
        with torch.inference_mode():
            for name in self._flow(rows, all_rows).methods:
                method = self.program.methods[name]
                if rows[method.axis]:
                    made = self._run(method, tensors, bridges)
                    results = {output: made.pop(output) for output in method.outputs}
                    bridges |= made
        return results

    def _flow(self, rows: Mapping[str, int], all_rows: bool) -> Flow:
        for flow in FLOWS:
            methods = [self.program.methods.get(name) for name in flow.methods]
            fits = all(m is not None and rows[m.axis] <= m.symbol.hi for m in methods)
            if fits and (flow.requires == "nothing" or all_rows):
                return flow
        raise Dsv41cError("DSV41C-E0801", "step", found=str(dict(rows)), do="pass fewer rows",
                          needed="rows within the bounds of the methods of some flow")

    def _run(self, method: Method, inputs: Mapping[str, torch.Tensor],
             bridges: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Outputs and bridges of one method by name. Values are dropped behind their last reader."""
        sources = {Origin.WEIGHT: self._weights, Origin.STATE: self.state, Origin.INPUT: inputs, Origin.BRIDGE: bridges}
        last = {source: node for node in method.graph.nodes for source in node.all_input_nodes}
        values: dict[fx.Node, Any] = {}
        for node in method.graph.nodes:
            if node.op == "output":
                made = [values[n] for n in node.args[0]]
            elif node.op == "placeholder":
                values[node] = sources[node.meta["origin"]][node.meta["name"]]
            else:
                args, kwargs = fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
                values[node] = node.target(*args, **kwargs)
            if self._seen is not None and node.op != "output":
                self._seen(method, node, values[node])
            for source in node.all_input_nodes:
                if last[source] is node:
                    values.pop(source)
        return dict(zip((*method.outputs, *method.bridges_out), made, strict=True))
