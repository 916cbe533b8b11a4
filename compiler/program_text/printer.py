"""Prints a program as text that `parser.py` reads back: one line a node, with what each value is as a comment."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any

import sympy
import torch
from torch import fx

from dsv41c.compiler.program import Method, Program, op_name

GETITEM, VIEW, SYM_SIZE = "getitem", "view", "sym_size"
PLAIN = {GETITEM: operator.getitem, VIEW: torch.ops.aten.view.default, SYM_SIZE: torch.ops.aten.sym_size.int}
_WORD = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")
_COMMENT_COLUMN = 72


def print_program(program: Program) -> str:
    """Methods in order, an empty line between them."""
    return "\n".join(print_method(method) for method in program.methods.values())


def print_method(method: Method) -> str:
    """`method NAME AXIS SYMBOL in LO..HI { ... }`, ending with a line break."""
    symbol = method.symbol
    lines = [f"method {method.name} {method.axis} {symbol.name} in {symbol.lo}..{symbol.hi} {{"]
    members: set[fx.Node] = set()  # written on the line of their call
    for node in method.graph.nodes:
        if node in members:
            continue
        if node.op == "placeholder":
            lines.append(f"  {_declaration(node, symbol.name)}")
        elif node.op == "output":
            lines.append(f"  return {_results(method, node)}".rstrip())
        else:
            own = members_of(node)
            members |= set(own)
            lines.append(_with_comment(f"  {_call(node, own)}", describe(node.meta.get("val"), symbol.name)))
    return "\n".join([*lines, "}", ""])


def members_of(node: fx.Node) -> list[fx.Node]:
    """The members of a call's results that follow it at once, in order: the form that text can leave unsaid."""
    found: list[fx.Node] = []
    for member in takewhile(lambda n: n.target is operator.getitem and n.args[0] is node, _behind(node)):
        number = member.args[1]
        if not isinstance(number, int) or number < 0 or (found and number <= found[-1].args[1]):  # type: ignore
            break
        found.append(member)
    return found


def _behind(node: fx.Node) -> Iterator[fx.Node]:
    while (node := node.next).op != "root":
        yield node


def _declaration(node: fx.Node, symbol: str) -> str:
    value = describe(node.meta["val"], symbol)
    dtype, sizes = value.split(" ", 1)
    return f"{node.meta['origin'].value} %{node.name} : {dtype} {sizes} = {json.dumps(node.meta['name'])}"


def _call(node: fx.Node, members: Sequence[fx.Node]) -> str:
    call = f"{callee(node)}({', '.join(_arguments(node))})"
    value = node.meta.get("val")
    if value is None:
        return f"{call} as %{node.name}"
    if not members:
        return f"%{node.name} = {call}"
    names = {member.args[1]: f"%{member.name}" for member in members}
    left = ", ".join(names.get(i, "_") for i in range(len(value))) + ("," if len(value) == 1 else "")
    return f"{left} = {call} as %{node.name}"


def callee(node: fx.Node) -> str:
    """The word that names what a node calls."""
    plain = next((word for word, target in PLAIN.items() if node.target is target), None)
    return plain or op_name(node) or str(node.target)


def _arguments(node: fx.Node) -> Iterator[str]:
    yield from map(value_text, node.args)
    yield from (f"{name}={value_text(value)}" for name, value in node.kwargs.items())


def value_text(value: object) -> str:
    """An argument: a value, a number, a word, a string or a list of these."""
    if isinstance(value, fx.Node):
        return f"%{value.name}"
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(value_text, value)) + "]"
    return repr(value)


def _results(method: Method, output: fx.Node) -> str:
    nodes: Any = output.args[0]
    names = [*map(_name, method.outputs), *(f"bridge {_name(n)}" for n in method.bridges_out)]
    return ", ".join(f"{name}=%{node.name}" for name, node in zip(names, nodes, strict=True))


def _name(name: str) -> str:
    return name if _WORD.match(name) and name != "bridge" else json.dumps(name)


def _with_comment(line: str, comment: str) -> str:
    return f"{line.ljust(_COMMENT_COLUMN)}  # {comment}" if comment else line


def describe(value: Any, symbol: str) -> str:
    """`bfloat16 [D, 64]`; the results of a call with several of them with commas; nothing for no value."""
    if value is None:
        return ""
    if isinstance(value, tuple | list):
        return ", ".join(describe(v, symbol) for v in value)
    if not isinstance(value, torch.Tensor):
        return size_text(value, symbol)
    return f"{str(value.dtype).removeprefix('torch.')} [{', '.join(size_text(s, symbol) for s in value.shape)}]"


def size_text(size: Any, symbol: str) -> str:
    """A size over the method's symbol: `64`, `D`, `2*D`, `D + 1`."""
    if isinstance(size, int) and not isinstance(size, torch.SymInt):
        return str(size)
    expression = sympy.sympify(size.node.expr)
    return str(expression.subs({free: sympy.Symbol(symbol, integer=True) for free in expression.free_symbols}))
