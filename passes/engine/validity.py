"""What every program must be before and after a pass: declared calls, values in order, shapes that ops really give."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import fx

from dsv41c.compiler.ops.catalog import OPS
from dsv41c.compiler.program import PLAIN, Method, Program, argument, is_plain, op_name
from dsv41c.passes.engine.effects import state_writes
from dsv41c.passes.engine.values import Evaluations, Texts, texts_of


def faults(program: Program, foreign: bool = False) -> Iterator[str]:
    """The first fault of each method: what the plan cannot express. `foreign`: calls that passes are to raise may be
    there."""
    for method in program.methods.values():
        found = next(_method_faults(method, foreign), None)
        if found is not None:
            yield f"method {method.name}: {found}"


def foreign_calls(program: Program) -> Iterator[tuple[str, fx.Node]]:
    """Method and node of every call that is not declared."""
    for name, method in program.methods.items():
        yield from ((name, node) for node in method.graph.nodes if not is_plain(node))


def faults_between(before: Program, after: Program) -> Iterator[str]:
    """What a pass may not change: methods, results and their shapes, state writes; new calls are evaluated."""
    if list(before.methods) != list(after.methods):
        yield f"methods {list(after.methods)} instead of {list(before.methods)}"
        return
    for name, method in after.methods.items():
        if _results(method) != _results(before.methods[name]):
            yield f"method {name} gives {_results(method)} instead of {_results(before.methods[name])}"
        yield from (f"method {name}: {f}" for f in _wrong_values(before.methods[name], method))
    old, new = state_writes(before), state_writes(after)
    for write in sorted(old.keys() | new.keys()):
        if old[write] != new[write]:
            yield f"method {write[0]} writes {write[1]} {new[write]} times instead of {old[write]}"


def _method_faults(method: Method, foreign: bool) -> Iterator[str]:
    try:
        method.graph.lint()
    except RuntimeError as error:
        yield f"the graph is broken: {str(error).splitlines()[0]}"
        return
    for node in method.graph.nodes:
        if node.op == "placeholder":
            if not {"origin", "name", "val"} <= node.meta.keys():
                yield f"placeholder %{node.name} has no origin, name or value"
        elif node.op == "call_function":
            if op_name(node) not in OPS if op_name(node) else node.target not in PLAIN and not foreign:
                yield f"%{node.name} calls {node.target}, which is not declared"
            if "val" not in node.meta:
                yield f"%{node.name} has no value"
        elif node.op != "output":
            yield f"%{node.name} is a {node.op}"


def _wrong_values(before: Method, after: Method) -> Iterator[str]:
    """Calls that the method did not have before, against the shapes and dtypes that their op gives."""
    known, evaluations = {(n.name, n.target): n for n in before.graph.nodes}, Evaluations()
    for node in after.graph.nodes:
        old = known.get((node.name, node.target))
        is_same = old is not None and [a.name for a in old.all_input_nodes] == [a.name for a in node.all_input_nodes]
        if is_same or op_name(node) is None:
            continue
        given: list[Any] = [argument(node, d.name) for d in node.target._schema.arguments]
        try:
            made = evaluations.texts(node.target, fx.node.map_arg(given, lambda a: a.meta["val"]))
        except Exception as error:
            yield f"%{node.name} cannot be called so: {(str(error) or repr(error)).splitlines()[0]}"
            continue
        if made != texts_of(node.meta["val"]):
            yield f"%{node.name} is said to be {list(texts_of(node.meta['val']))} and is {list(made)}"


def _results(method: Method) -> list[Texts]:
    (output,) = (n for n in method.graph.nodes if n.op == "output")
    return [texts_of(n.meta["val"]) for n in output.args[0]]
