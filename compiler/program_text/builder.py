"""Builds the graph of one method while its text is read: names, calls, and the values that the ops' fakes give."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx

from dsv41c.compiler.ops.catalog import OPS
from dsv41c.compiler.program import Origin
from dsv41c.compiler.program_text.metas import RowSymbol
from dsv41c.compiler.program_text.printer import PLAIN
from dsv41c.compiler.program_text.scanner import Token, refuse, unknown


class MethodBuilder:
    """Nodes by their name, in the order of the text."""

    def __init__(self, symbol: str) -> None:
        self.symbol = symbol
        self._rows = RowSymbol(symbol)
        self._graph = fx.Graph()
        self._nodes: dict[str, fx.Node] = {}
        self._results: list[fx.Node] = []

    def node(self, token: Token) -> fx.Node:
        name = token.text[1:]
        if name not in self._nodes:
            raise unknown(token, "value", token.text, [f"%{n}" for n in self._nodes])
        return self._nodes[name]

    def declare(self, token: Token, origin: Origin, name: str, dtype: torch.dtype,
                sizes: Sequence[tuple[int, int]]) -> None:
        """A placeholder; sizes as (slope, base)."""
        value = self._rows.tensor(dtype, [self._rows.size(*size) for size in sizes])
        node = self._add(token, "placeholder", token.text[1:], (), {}, token.text[1:])
        node.meta.update(origin=origin, name=name, val=value)

    def call(self, callee: Token, args: Sequence[Any], kwargs: Mapping[str, Any], left: Sequence[Token | None],
             is_list: bool, name: Token | None) -> None:
        """A call and, where `left` takes its results apart, a node for each member that has a name."""
        target = _target(callee)
        own = name or (left[0] if left and not is_list else None)
        node = self._add(own or callee, "call_function", target, tuple(args), dict(kwargs), own and own.text[1:])
        value = node.meta["val"] = _infer(callee, node)
        if value is None and left:
            raise refuse(callee, f"a value of {callee.text}", f"no value: {callee.text} gives none")
        if value is not None and not left:
            raise refuse(callee, f"{callee.text} without a name for its result", f"%name = {callee.text}(...)")
        if not is_list:
            return
        if not isinstance(value, tuple | list) or len(value) != len(left):
            has = len(value) if isinstance(value, tuple | list) else 1
            raise refuse(callee, f"{len(left)} names", f"{has}, the number of results of {callee.text}")
        for number, member in enumerate(left):
            if member is not None:
                item = self._add(member, "call_function", operator.getitem, (node, number), {}, member.text[1:])
                item.meta["val"] = value[number]

    def give(self, token: Token) -> None:
        """One more result of the method."""
        node = self.node(token)
        if not isinstance(node.meta["val"], torch.Tensor):
            raise refuse(token, f"{token.text}, which is no tensor", "a tensor")
        self._results.append(node)

    def finish(self, start: Token) -> fx.Graph:
        if not self._rows.is_free:
            raise refuse(start, f"an op that fixes {self.symbol} to one number", f"ops that take every {self.symbol}")
        self._graph.output(tuple(self._results))
        return self._graph

    def _add(self, token: Token, op: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any],
             name: str | None) -> fx.Node:
        if name in self._nodes:
            raise refuse(token, f"a second %{name}", "each name once")
        node = self._graph.create_node(op, target, args, kwargs, name=name)
        if name is not None and node.name != name:
            raise refuse(token, f"%{name}, a reserved name", "another name")
        self._nodes[node.name] = node
        return node


def _target(callee: Token) -> Any:
    if callee.text in PLAIN:
        return PLAIN[callee.text]
    if callee.text not in OPS:
        raise unknown(callee, "op", callee.text, [*OPS, *PLAIN])
    return getattr(torch.ops.dsv41c, callee.text).default


def _infer(callee: Token, node: fx.Node) -> Any:
    """What the call gives, from the fake of its op."""
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
    try:
        assert callable(node.target)
        return node.target(*args, **kwargs)
    except Exception as error:
        found = (str(error).strip() or repr(error)).splitlines()[0]
        schema = getattr(node.target, "_schema", None)
        raise refuse(callee, found, f"arguments that {schema or callee.text} takes") from error
