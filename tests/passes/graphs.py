"""Programs of one method for tests of passes, and their evaluation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx
from torch._subclasses import FakeTensorMode

from dsv41c.compiler.aten_form import trace
from dsv41c.compiler.ops import catalog  # noqa: F401  registers the ops
from dsv41c.compiler.program import Method, Origin, Program, Symbol
from dsv41c.passes.engine.spelling import ROWS


def program_of(function: Callable[..., Any], *examples: Tensor, state: int | None = None,
               rows: int | None = None) -> Program:
    """The function over fake tensors as method `decode`; the placeholder numbered `state` is state. A first size of
    `rows` stands for any number of rows."""
    mode = FakeTensorMode()
    given = [e.new_empty([ROWS, *e.shape[1:]], device="meta") if rows == e.shape[0] else e.to("meta") for e in examples]
    graph = trace(function, [mode.from_tensor(g) for g in given])
    for number, node in enumerate(n for n in graph.nodes if n.op == "placeholder"):
        origin = Origin.STATE if number == state else Origin.INPUT
        node.meta.update(origin=origin, name=node.name)
    for node in graph.nodes:
        node.meta.setdefault("val", None)
    (output,) = (n for n in graph.nodes if n.op == "output")
    if not isinstance(output.args[0], tuple | list):
        output.args = ((output.args[0],),)
    return Program({"decode": Method("decode", "rows", Symbol("D", 1, 16), graph, ("y",), ())})


def graph_of(program: Program) -> fx.Graph:
    return program.methods["decode"].graph


def evaluate(program: Program, *args: Tensor) -> Any:
    return fx.GraphModule(torch.nn.Module(), graph_of(program))(*args)


def targets(program: Program) -> list[str]:
    return [str(n.target).removeprefix("dsv41c.").removesuffix(".default") for n in graph_of(program).nodes
            if n.op == "call_function"]
