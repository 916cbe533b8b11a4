"""Program: the captured model as methods, each a flat FX graph of declared ops over one bounded symbol."""

from __future__ import annotations

import enum
import operator
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import fx

from dsv41c.runtime.plan.schema import Flow

PLAIN = (torch.ops.aten.view.default, operator.getitem, torch.ops.aten.sym_size.int)

# The first flow that fits a step is taken.
FLOWS: tuple[Flow, ...] = (Flow("decode", ("decode",), "all_rows_output"),
                           Flow("prefill", ("encoder", "decoder", "head"), "nothing"))


class Origin(enum.Enum):
    """Where a placeholder of a method comes from (node.meta["origin"])."""

    WEIGHT = "weight"
    STATE = "state"
    INPUT = "input"  # uploaded by the host
    BRIDGE = "bridge"  # written by an earlier method, static capacity


@dataclass(frozen=True)
class Symbol:
    name: str
    lo: int
    hi: int


@dataclass(frozen=True)
class Method:
    """`graph`: placeholders with meta origin/name/val; calls of `torch.ops.dsv41c.*`, views and getitem.

    `outputs` name the host-visible results and the bridge values, in the order of the graph's output node.
    """

    name: str
    axis: str
    symbol: Symbol
    graph: fx.Graph
    outputs: tuple[str, ...]
    bridges_out: tuple[str, ...]


@dataclass(frozen=True)
class Program:
    methods: Mapping[str, Method]


def flows_of(program: Program) -> tuple[Flow, ...]:
    """Those of a step, and one of the draft where the program has it."""
    return (*FLOWS, Flow("draft", ("draft",), "nothing")) if "draft" in program.methods else FLOWS


def op_name(node: fx.Node) -> str | None:
    """`rms_norm` for a call of `dsv41c::rms_norm`, None for every other node."""
    target = node.target
    if node.op == "call_function" and isinstance(target, torch._ops.OpOverload) and target.namespace == "dsv41c":
        return str(target._schema.name).removeprefix("dsv41c::")
    return None


def is_plain(node: fx.Node) -> bool:
    """Whether it is a placeholder, a view, a member, a size or a declared op: what a plan can express."""
    return node.op != "call_function" or node.target in PLAIN or op_name(node) is not None


def memory_root(node: fx.Node) -> fx.Node:
    """The node that owns the memory: views and members of tuples share it with what they come from."""
    while node.op == "call_function" and node.target in (torch.ops.aten.view.default, operator.getitem):
        (node, *_) = node.all_input_nodes
    return node


def written_arguments(node: fx.Node) -> list[fx.Node]:
    """Arguments that an op call mutates, from its schema."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return []
    names = [d.name for d in target._schema.arguments if d.alias_info is not None and d.alias_info.is_write]
    return [a for a in (argument(node, n) for n in names) if isinstance(a, fx.Node)]


def argument(node: fx.Node, name: str) -> object:
    """An argument of an op call by its schema name."""
    target = node.target
    assert isinstance(target, torch._ops.OpOverload)
    for position, declared in enumerate(target._schema.arguments):
        if declared.name == name:
            return node.args[position] if position < len(node.args) else node.kwargs.get(name, declared.default_value)
    raise KeyError(f"{target} has no argument {name}")
