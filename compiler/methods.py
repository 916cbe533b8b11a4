"""Cuts the captured program into the methods decode, encoder, decoder and head at the take_rows boundaries; the
captured draft is one method."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from torch import fx

from dsv41c.compiler.bounds import method_bounds
from dsv41c.compiler.capture import Captured
from dsv41c.compiler.model.transformer import LOGITS, SUFFIX
from dsv41c.compiler.options import CompileOptions
from dsv41c.compiler.program import Method, Origin, Program, Symbol, argument, memory_root, op_name, written_arguments
from dsv41c.runtime.plan.errors import Dsv41cError

_TAKES = {"take_rows": "x", "take_row_table": "rows"}


def build_methods(captured: Captured, options: CompileOptions) -> Program:
    """decode = the program uncut, boundaries left out; encoder, decoder and head = the program cut at them."""
    stage = _stages(captured.graph)
    _check_effect_order(captured.graph, stage)
    bounds = method_bounds(options)
    cut = [("encoder", "rows", Symbol("T", 1, bounds["encoder"])),
           ("decoder", "kept_rows", Symbol("R", 1, bounds["decoder"])),
           ("head", "output_rows", Symbol("L", 1, bounds["head"]))]
    methods = {"decode": _whole(captured, "decode", "rows", Symbol("D", 1, bounds["decode"]))}
    for index, (name, axis, symbol) in enumerate(cut):
        methods[name] = _piece(captured, name, axis, symbol, index, stage)
    return Program(methods)


def build_draft_method(captured: Captured, options: CompileOptions) -> Method:
    """The captured draft, uncut, over groups of rows."""
    return _whole(captured, "draft", "groups", Symbol("G", 1, method_bounds(options)["draft"]))


def _boundary(node: fx.Node) -> str | None:
    return str(argument(node, "boundary")) if op_name(node) in _TAKES else None


def _stages(graph: fx.Graph) -> Mapping[fx.Node, int]:
    """0 before the suffix boundary, 1 behind it, 2 behind the logits boundary; a take belongs to what follows. What
    comes from weights alone has none: every piece computes what it reads."""
    stage: dict[fx.Node, int] = {}
    for node in graph.nodes:
        if node.op == "placeholder" or _is_constant(node, stage):
            continue
        found = max((stage[p] for p in node.all_input_nodes if p in stage), default=0)
        boundary = _boundary(node)
        if boundary is not None:
            needed = {SUFFIX: 1, LOGITS: 2}[boundary]
            if found < needed - 1 or found > needed:
                raise _crossing(node, node.all_input_nodes[0])
            found = needed
        stage[node] = found
    return stage


def _check_effect_order(graph: fx.Graph, stage: Mapping[fx.Node, int]) -> None:
    """Cutting runs all of a stage before the next one: no call on a state tensor may then run earlier than one that
    stood before it, where one of the two writes."""
    latest: dict[fx.Node, tuple[int, int]] = {}  # state -> (latest stage of any call, of a writing call)
    for node in stage:
        written = [memory_root(n) for n in written_arguments(node)]
        for source in map(memory_root, node.all_input_nodes if op_name(node) else ()):
            if source.meta.get("origin") is not Origin.STATE:
                continue
            is_write = source in written
            before = latest.get(source, (0, 0))
            if stage[node] < before[0 if is_write else 1]:
                raise Dsv41cError("DSV41C-E0203", f"node {node.name}", where=f"state {source.meta['name']}",
                                  found="a call that would run before calls it stands behind",
                                  needed="calls on one state tensor in the order of the stages",
                                  do="move the call in compiler/model/transformer.py")
            latest[source] = max(before[0], stage[node]), max(before[1], stage[node] if is_write else 0)


def _whole(captured: Captured, name: str, axis: str, symbol: Symbol) -> Method:
    """The program uncut, boundaries left out."""
    graph = fx.Graph()
    copied: dict[fx.Node, fx.Node] = {}
    for node in captured.graph.nodes:
        if node.op == "output":
            continue
        if node.op == "placeholder" and node.meta["name"] in ("keep_rows", "logit_rows"):
            continue
        if _boundary(node) is not None:
            source = argument(node, _TAKES[str(op_name(node))])
            assert isinstance(source, fx.Node)
            copied[node] = copied[source]
            continue
        copied[node] = _copy(graph, node, copied.__getitem__)
    _finish(graph, [copied[n] for n in _returned(captured.graph)])
    return Method(name, axis, symbol, graph, captured.outputs, ())


def _piece(captured: Captured, name: str, axis: str, symbol: Symbol, index: int,
           stage: Mapping[fx.Node, int]) -> Method:
    """Nodes of one stage. Values that the next stage's takes read leave through bridges."""
    graph = fx.Graph()
    copied: dict[fx.Node, fx.Node] = {}
    inside = _computed(captured.graph, stage, index)
    made = set(inside)
    for node in inside:  # placeholders stand first: whatever a call reads from outside exists from the start
        for source in node.all_input_nodes:
            if source in stage and stage[source] != index and _boundary(node) is None:
                raise _crossing(node, source)
            if source not in copied and source not in made:
                copied[source] = _enter(graph, source, stage, index)
    for node in inside:
        copied[node] = _copy(graph, node, copied.__getitem__)
    bridges = _bridge_sources(captured.graph, stage, index)
    results = {n: output for output, n in zip(captured.outputs, _returned(captured.graph), strict=True)
               if stage[n] == index}
    if results.keys() & set(bridges):
        raise _crossing(next(iter(results.keys() & set(bridges))), captured.graph.find_nodes(op="output")[0])
    _finish(graph, [copied[n] for n in (*results, *bridges)])
    return Method(name, axis, symbol, graph, tuple(results.values()), tuple(n.name for n in bridges))


def _computed(graph: fx.Graph, stage: Mapping[fx.Node, int], index: int) -> list[fx.Node]:
    """The calls of a piece in order: those of its stage, and what they read that comes from weights alone."""
    needed: set[fx.Node] = set()
    for node in reversed(list(graph.nodes)):
        is_read = node not in stage and not needed.isdisjoint(node.users)
        if node.op == "call_function" and (stage.get(node) == index or is_read):
            needed.add(node)
    return [n for n in graph.nodes if n in needed]


def _enter(graph: fx.Graph, node: fx.Node, stage: Mapping[fx.Node, int], index: int) -> fx.Node:
    """A placeholder for a weight, state or input, or for a value that crosses the boundary on a bridge."""
    placeholder = graph.placeholder(node.name)
    placeholder.meta = dict(node.meta)
    if node in stage:
        placeholder.meta.update(origin=Origin.BRIDGE, name=node.name)
    return placeholder


def _bridge_sources(graph: fx.Graph, stage: Mapping[fx.Node, int], index: int) -> list[fx.Node]:
    found: dict[fx.Node, None] = {}
    for node in graph.nodes:
        if stage.get(node) == index + 1 and _boundary(node) is not None:
            source = argument(node, _TAKES[str(op_name(node))])
            assert isinstance(source, fx.Node)
            if stage.get(source) == index:
                found[source] = None
    return list(found)


def _returned(graph: fx.Graph) -> Sequence[fx.Node]:
    (output,) = (n for n in graph.nodes if n.op == "output")
    return tuple(output.args[0])


def _copy(graph: fx.Graph, node: fx.Node, resolve: Callable[[fx.Node], fx.Node]) -> fx.Node:
    copy = graph.node_copy(node, resolve)
    copy.meta = dict(node.meta)
    return copy


def _finish(graph: fx.Graph, results: list[fx.Node]) -> None:
    """Close the graph and drop what nothing reads and nothing feels: calls without effects or readers."""
    graph.output(tuple(results))
    for node in reversed(list(graph.nodes)):
        if node.op != "output" and not node.users and not _has_effect(node):
            graph.erase_node(node)


def _is_constant(node: fx.Node, stage: Mapping[fx.Node, int]) -> bool:
    """Whether a value comes from weights alone; `stage` holds the calls before it that do not."""
    return node.op == "call_function" and op_name(node) is None and all(
        n not in stage and (n.op != "placeholder" or n.meta["origin"] is Origin.WEIGHT) for n in node.all_input_nodes)


def _has_effect(node: fx.Node) -> bool:
    return op_name(node) is not None and bool(node.target._schema.is_mutable)  # type: ignore[union-attr]


def _crossing(node: fx.Node, source: fx.Node) -> Dsv41cError:
    return Dsv41cError("DSV41C-E0203", f"node {node.name}", found=f"it reads {source.name} across a boundary",
                       needed="values cross boundaries through take_rows or take_row_table only",
                       do="take the value at the boundary in compiler/model/transformer.py")
