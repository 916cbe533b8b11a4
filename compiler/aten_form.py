"""One functional form for ATen calls of a program that was not written in declared ops.

Composite calls are decomposed, writes into temporaries become values, and sizes that follow the rows become -1, so that
a graph may be cut where the number of rows changes.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._decomp import core_aten_decompositions
from torch._dispatch.python import enable_python_dispatcher
from torch._guards import detect_fake_mode
from torch.fx.experimental.proxy_tensor import make_fx

from dsv41c.compiler.program import written_arguments
from dsv41c.runtime.plan.errors import Dsv41cError

_ATEN = torch.ops.aten
_SIZED = (_ATEN.view.default, _ATEN.expand.default, _ATEN._unsafe_view.default)


def trace(function: Callable[..., Any], args: Sequence[torch.Tensor]) -> fx.Graph:
    """The function's graph over decomposed, functional calls; the meta or fake tensors become its placeholders."""
    mode = detect_fake_mode(list(args))
    # Python's shape functions keep symbols where some of the compiled ones bind them to the example's size.
    with mode or contextlib.nullcontext(), enable_python_dispatcher():
        graph = make_fx(function, _decompositions(), tracing_mode="real")(*args).graph
    _make_functional(graph)
    return graph


def lowered(graph: fx.Graph) -> fx.Graph:
    """The same for an exported graph; placeholders keep their names and meta."""
    given = [n for n in graph.nodes if n.op == "placeholder"]
    interpreter = fx.Interpreter(fx.GraphModule(torch.nn.Module(), graph))
    symbols = [_moving(n) for n in given]
    traced = trace(lambda *args: interpreter.run(*args, enable_io_processing=False), [n.meta["val"] for n in given])
    if symbols != [_moving(n) for n in given]:
        raise Dsv41cError("DSV41C-E0201", "ATen form of the program", found="a call that fixes the number of rows",
                          needed="calls that take every number of rows", do="write it without sizes, or report this")
    named, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in traced.nodes:
        old = given[len(copies)] if node.op == "placeholder" else node
        copies[node] = named.placeholder(old.name) if old is not node else named.node_copy(node, copies.__getitem__)
        copies[node].meta = {"val": None, **old.meta}  # a call without results has no value
    _read_sizes_early(named)
    return named


@functools.cache
def _decompositions() -> Mapping[Any, Callable[..., Any]]:
    """Making the table takes a quarter of a second: a spelling is traced often."""
    return dict(core_aten_decompositions())


def _moving(node: fx.Node) -> list[str]:
    return [str(s) for s in node.meta["val"].shape]


def _read_sizes_early(graph: fx.Graph) -> None:
    """The number of rows comes from the first placeholder that has it, which every piece of the program can see."""
    given = [n for n in graph.nodes if n.op == "placeholder"]
    for node in graph.nodes:
        if node.target is _ATEN.sym_size.int:
            symbol = str(node.args[0].meta["val"].shape[node.args[1]])
            node.args = next((p, d) for p in given for d, s in enumerate(p.meta["val"].shape) if str(s) == symbol)


def _make_functional(graph: fx.Graph) -> None:
    for node in list(graph.nodes):
        if node.target is _ATEN._assert_tensor_metadata.default:
            graph.erase_node(node)
        elif _is_aten(node) and written_arguments(node):
            _as_value(graph, node)
        elif node.target in _SIZED:
            node.args = (node.args[0], _sizes(node))
    for node in reversed(list(graph.nodes)):
        if node.op == "call_function" and not node.users and not written_arguments(node):
            graph.erase_node(node)


def _sizes(node: fx.Node) -> Any:
    """Static sizes; what follows the rows is -1, which `expand` reads as the size that is there."""
    wanted = list(node.meta["val"].shape)
    moving = [not isinstance(s, int) for s in wanted]
    if node.target is _ATEN.expand.default:
        source = list(node.args[0].meta["val"].shape)  # type: ignore[union-attr]
        source = [1] * (len(wanted) - len(source)) + source
        is_new = any(m and isinstance(s, int) for m, s in zip(moving, source, strict=True))
    else:
        is_new = sum(moving) > 1
    return node.args[1] if is_new else [-1 if m else int(s) for m, s in zip(moving, wanted, strict=True)]


def _as_value(graph: fx.Graph, node: fx.Node) -> None:
    """`x.add_(y)` as `x' = x.add(y)`, for a temporary x whose memory no later call reads by another name; E0202
    otherwise. `x[..., a:b].copy_(y)` is a concatenation of what stays and what comes."""
    target = node.args[0]
    assert isinstance(target, fx.Node)
    is_part = target.target is _ATEN.slice.Tensor and _name(node) == "copy_" and len(target.args) <= 4
    owner = target.args[0] if is_part else target
    assert isinstance(owner, fx.Node)
    later = _behind(graph, node)
    aliases = [u for u in owner.users if _is_view(u) and any(v in later for v in u.users)]
    if owner.op != "call_function" or _is_view(owner) or aliases:
        raise Dsv41cError("DSV41C-E0202", f"node {node.name}", found=f"a call of {node.target} on memory that has "
                          "another name", needed="writes into whole temporaries, or declared ops on state",
                          do="compute a new value instead of changing a tensor")
    with graph.inserting_before(node):
        value = _joined(graph, owner, target, node) if is_part else _value(graph, node)
    node.replace_all_uses_with(value)
    owner.replace_all_uses_with(value, delete_user_cb=lambda user: user in later)
    graph.erase_node(node)


def _value(graph: fx.Graph, node: fx.Node) -> fx.Node:
    like = node.args[0].meta["val"]  # type: ignore[union-attr]
    if _name(node) == "copy_":
        return _cast(graph, node.args[1], like)  # type: ignore[arg-type]
    packet = getattr(_ATEN, _name(node).removesuffix("_"))
    assert isinstance(node.target, torch._ops.OpOverload)
    return _make(graph, getattr(packet, node.target._overloadname), node.args, node.kwargs, like)


def _joined(graph: fx.Graph, owner: fx.Node, part: fx.Node, node: fx.Node) -> fx.Node:
    value = owner.meta["val"]
    dim, start, end = (list(part.args[1:]) + [0, 0, None][len(part.args) - 1:])[:3]
    size = value.shape[dim]
    start, end = _bound(start, size), _bound(end, size)
    pieces = []
    for low, high in ((0, start), (start, end), (end, size)):
        like = value.new_empty([high - low if d == dim % value.dim() else s for d, s in enumerate(value.shape)])
        if low == start and high == end:
            pieces.append(_cast(graph, node.args[1], like))  # type: ignore[arg-type]
        elif low < high:
            pieces.append(_make(graph, _ATEN.slice.Tensor, (owner, dim, low, high), {}, like))
    return pieces[0] if len(pieces) == 1 else _make(graph, _ATEN.cat.default, (pieces, dim), {}, value)


def _cast(graph: fx.Graph, source: fx.Node, like: torch.Tensor) -> fx.Node:
    narrow = like.new_empty(source.meta["val"].shape)
    cast = _make(graph, _ATEN._to_copy.default, (source,), {"dtype": like.dtype}, narrow)
    wide = _make(graph, _ATEN.expand.default, (cast, list(like.shape)), {}, like)
    wide.args = (cast, _sizes(wide))
    return wide


def _make(graph: fx.Graph, target: Any, args: Any, kwargs: Any, value: torch.Tensor) -> fx.Node:
    node = graph.call_function(target, args, kwargs)
    node.meta["val"] = value
    return node


def _bound(index: Any, size: int) -> int:
    return size if index is None else max(0, min(index + size if index < 0 else index, size))


def _behind(graph: fx.Graph, node: fx.Node) -> set[fx.Node]:
    nodes = list(graph.nodes)
    return set(nodes[nodes.index(node) + 1:])


def _is_aten(node: fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target.namespace == "aten"


def _is_view(node: fx.Node) -> bool:
    target = node.target
    return isinstance(target, torch._ops.OpOverload) and not target._schema.is_mutable and any(
        r.alias_info is not None for r in target._schema.returns)


def _name(node: fx.Node) -> str:
    assert isinstance(node.target, torch._ops.OpOverload)
    return str(node.target._schema.name).split("::")[1]
