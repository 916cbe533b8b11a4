"""Spellings: functions in plain torch that say what a declared op computes, and the patterns that they give."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from dsv41c.compiler.aten_form import trace
from dsv41c.compiler.ops.catalog import OPS
from dsv41c.passes.engine.aten import normalize
from dsv41c.passes.engine.pattern import AnyNumber, Literal, Operand, Pattern, Ref, Step, Var
from dsv41c.passes.engine.search import call_name, operands_of

ROWS = 10007  # stands for the number of rows wherever a spelling is traced
_SIZES = {"view": 1, "aten.expand.default": 1, "aten.slice.Tensor": 2, "aten.topk.default": 1,
          "aten.split_with_sizes.default": 1}  # first number operand
_SHAPED = ("view", "aten.expand.default")  # sizes of 1 and -1 tell arguments apart


def follows_rows(size: Any) -> bool:
    return not isinstance(size, int) or (size > 0 and size % ROWS == 0)


@dataclass(frozen=True)
class Spelling:
    """`examples` gives argument lists in the op's order: meta tensors with ROWS rows, None, dtypes and bools as they
    are, and a number of its own for each attribute that the pattern is to find."""

    function: Callable[..., Any]
    anchor: str  # the ATen call at whose sites it is tried
    examples: Callable[[], Iterator[tuple[Any, ...]]]


@functools.cache
def exact_steps(spelling: Spelling, arguments: tuple[Any, ...]) -> tuple[Step, ...]:
    """The calls of the spelling on these arguments; a tensor is given by its shape and dtype."""
    given = [torch.empty(a[0], dtype=a[1], device="meta") if isinstance(a, tuple) else a for a in arguments]
    return _steps(spelling.function, given, {}, [])[0]


@functools.cache
def patterns(op: str, spelling: Spelling) -> tuple[Pattern, ...]:
    """One pattern for each example that gives another list of calls, the longest first."""
    schema = OPS[op].parsed()
    names = [a.name for a in schema.arguments]
    optional = {a.name for a in schema.arguments if str(a.type).startswith("Optional")}
    found: list[Pattern] = []
    for example in spelling.examples():
        numbers = {v: n for n, v in zip(names, example, strict=True)
                   if isinstance(v, int | float) and not isinstance(v, bool)}
        fixed = {n: v for n, v in zip(names, example, strict=True)
                 if isinstance(v, bool | torch.dtype | str) or (v is None and n in optional)}
        steps, results = _steps(spelling.function, list(example), numbers, names)
        results += (Literal(None),) * (len(schema.returns) - len(results))
        pattern = Pattern(op, fixed, steps, results)
        if steps and pattern not in found:
            found.append(pattern)
    return tuple(sorted(found, key=lambda p: -len(p.steps)))


def _steps(function: Callable[..., Any], example: Sequence[Any], numbers: Mapping[Any, str],
           names: Sequence[str]) -> tuple[tuple[Step, ...], tuple[Operand, ...]]:
    """The calls of the spelling; a number of `numbers` is a variable, a size or bound anything, others themselves."""
    places = [i for i, v in enumerate(example) if isinstance(v, torch.Tensor)]

    def call(*tensors: torch.Tensor) -> Any:
        given = list(example)
        for place, tensor in zip(places, tensors, strict=True):
            given[place] = tensor
        return function(*given)

    graph = trace(call, [example[i] for i in places])
    normalize(graph, follows_rows)
    operands: dict[fx.Node, Operand] = {}
    steps: list[Step] = []
    for node in graph.nodes:
        if node.op == "placeholder":
            place = places[len(operands)]
            operands[node] = Var(names[place] if names else str(place))
        elif node.target is operator.getitem:
            owner = operands[node.args[0]]
            assert isinstance(owner, Ref)
            operands[node] = Ref(owner.step, node.args[1])
        elif node.op == "call_function":
            operands[node] = Ref(len(steps), 0)
            steps.append(_step(node, operands, numbers, bool(names)))
    (output,) = (n for n in graph.nodes if n.op == "output")
    results = output.args[0] if isinstance(output.args[0], tuple | list) else output.args
    return tuple(steps), tuple(operands[r] for r in results)


def _step(node: fx.Node, operands: Mapping[fx.Node, Operand], numbers: Mapping[Any, str], loose: bool) -> Step:
    name = str(call_name(node))
    made: list[Operand] = []
    for place, value in enumerate(operands_of(node)):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if isinstance(value, fx.Node):
            made.append(operands[value])
        elif is_number and value in numbers:
            made.append(Var(numbers[value]))
        elif is_number and loose and not (name in _SHAPED and value in (1, -1)) and (
                place >= _SIZES.get(name, 99) or -value in numbers):  # type: ignore[operator]
            made.append(AnyNumber())
        else:
            made.append(Literal(value))
    values = node.meta["val"]
    return Step(name, tuple(made), len(values) if isinstance(values, tuple | list) else 1)
