"""Small programs made from Python functions: traced on shapes, rewritten by one pass, run with and without it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_flatten

from dsv41c.compiler.ops.catalog import OPS as CATALOG
from dsv41c.compiler.ops.rows import Row, RowFlag
from dsv41c.compiler.pass_driver import Piped, run_passes
from dsv41c.compiler.program import Method, Origin, Program, Symbol, op_name
from dsv41c.passes.base import Match, Pass, Refusal
from tests.unit.compiler.ops.row_laws import assert_same_bits

OPS = torch.ops.dsv41c
NUMERICS = [(torch.float32, False), (torch.float32, True), (torch.bfloat16, True)]
SLOTS, PAGES, PER_SLOT = 3, 12, 4  # of the pools and page tables below; the last page is never written
Tensors = Mapping[str, Tensor]


def traced(body: Callable[..., Any], tensors: Tensors) -> Program:
    """One method `small` whose placeholders are the body's parameters; tensors it writes are state."""
    names = list(inspect.signature(body).parameters)
    graph = make_fx(lambda *given: _listed(body(*given)), tracing_mode="fake")(*(tensors[n] for n in names)).graph
    written = {n for node in graph.nodes if (op := op_name(node)) for n in _written(node, op)}
    for name, node in zip(names, (n for n in graph.nodes if n.op == "placeholder"), strict=True):
        node.meta["name"], node.meta["origin"] = name, Origin.STATE if node in written else Origin.INPUT
    for node in graph.nodes:
        node.meta.setdefault("val", None)  # calls that only write
    (output,) = (n for n in graph.nodes if n.op == "output")
    output.args = (tuple(output.args[0]),)
    return Program({"small": Method("small", "rows", Symbol("T", 1, 8), graph, (), ())})


def _listed(made: Any) -> list[Tensor]:
    return [leaf for leaf in tree_flatten(made)[0] if leaf is not None]


def _written(node: fx.Node, op: str) -> list[object]:
    arguments = [a.name for a in CATALOG[op].parsed().arguments]
    return [node.args[arguments.index(name)] for name in CATALOG[op].mutates]


def rewritten(step: Pass, program: Program) -> Piped:
    """The pass and every check of the driver."""
    return run_passes(program, (step,), left_out=step.requires)


def calls(program: Program) -> list[str]:
    """Declared ops of the method `small`, in order."""
    return [name for node in program.methods["small"].graph.nodes if (name := op_name(node))]


def fused(step: Pass, body: Callable[..., Any], tensors: Tensors, expected: Sequence[str],
          change: Callable[[int, Tensors], Tensors] | None = None, num_steps: int = 1) -> None:
    """The pass leaves the calls `expected`, finds nothing the second time, and keeps every bit of results and state.

    `change(i, tensors)` gives the inputs of step i; state goes from step to step.
    """
    program = traced(body, tensors)
    piped = rewritten(step, program)
    assert calls(piped.program) == list(expected)
    again = rewritten(step, piped.program)
    assert again.records[0].num_matches == 0 and calls(again.program) == list(expected)
    before, after = ({n: t.clone() for n, t in tensors.items()} for _ in range(2))
    for i in range(num_steps):
        for given, graph in ((before, program), (after, piped.program)):
            given.update({n: t.clone() for n, t in (change(i, tensors) if change else {}).items()})
            given["results"] = _run(graph, given)  # type: ignore[assignment]
        for number, (a, b) in enumerate(zip(before["results"], after["results"], strict=True)):
            assert_same_bits(b, a, f"result {number} of step {i}")
        for name in tensors:
            assert_same_bits(after[name], before[name], f"{name} behind step {i}")


def _run(program: Program, given: Tensors) -> list[Tensor]:
    graph = program.methods["small"].graph
    names = [n.meta["name"] for n in graph.nodes if n.op == "placeholder"]
    return list(fx.GraphModule(torch.nn.Module(), graph)(*(given[n] for n in names)))


def refusals(step: Pass, body: Callable[..., Any], tensors: Tensors) -> list[str]:
    """Reasons of the pass, which must not match anywhere."""
    program = traced(body, tensors)
    piped = rewritten(step, program)
    notes = piped.records[0].notes
    assert not [n for n in notes if isinstance(n, Match)]
    assert calls(piped.program) == calls(program)
    return [n.reason for n in notes if isinstance(n, Refusal)]


def row_table(*groups: tuple[int, int, int], pads: int = 0) -> Tensor:
    """Row table int32 of (slot, first position, count), then pads."""
    rows: list[Row] = []
    for slot, base, count in groups:
        first = len(rows)
        rows += [Row(slot, base + i, base, first, count, 7 + i, 0, 0) for i in range(count)]
    rows += [Row(SLOTS, 0, 0, len(rows), 1, 0, 0, RowFlag.START | RowFlag.PAD)] * pads
    return torch.tensor(rows, dtype=torch.int32)


def page_table() -> Tensor:
    """Slot s owns pages 4s to 4s+3; the trash slot has none."""
    table = torch.full((SLOTS + 1, PER_SLOT), PAGES, dtype=torch.int32)
    table[:SLOTS] = torch.arange(PAGES, dtype=torch.int32).view(SLOTS, PER_SLOT)
    return table


def pool(width: int, entries: int, dtype: torch.dtype) -> Tensor:
    return torch.zeros(PAGES + 1, entries, width, dtype=dtype)


def rotary_table(rope: int) -> Tensor:
    angle = torch.arange(64).unsqueeze(1) * 10.0 ** -torch.arange(rope // 2)
    return torch.stack([angle.cos(), angle.sin()], dim=-1).float()


def drawn(*sizes: int, dtype: torch.dtype = torch.float32, seed: int = 0, spread: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed + 1000 * len(sizes) + sum(sizes))
    return (torch.randn(*sizes, generator=generator) * spread).to(dtype)


def quantised(out: int, width: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """FP8 bytes and block scales of a weight `[out, width]`."""
    blocks = torch.full((-(-out // 32), -(-width // 32)), 0.25).to(torch.float8_e8m0fnu)
    return drawn(out, width, seed=seed).to(torch.float8_e4m3fn), blocks
