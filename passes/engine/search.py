"""Finds a pattern around one call of a graph, and says what stood against it when there is none."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import fx

from dsv41c.compiler.program import argument, op_name
from dsv41c.passes.engine.pattern import VIEW, AnyNumber, Literal, Operand, Pattern, Ref, Step, Var

EITHER_ORDER = ("aten.mul.Tensor", "aten.add.Tensor", "aten.bitwise_or.Tensor")


@dataclass
class Binding:
    """Steps of the pattern to calls of the graph, and arguments of the fused op to what they stand for."""

    steps: dict[int, fx.Node] = field(default_factory=dict)
    variables: dict[str, object] = field(default_factory=dict)

    def copy(self) -> Binding:
        return Binding(dict(self.steps), dict(self.variables))

    def take(self, other: Binding) -> None:
        self.steps, self.variables = other.steps, other.variables


@dataclass
class Search:
    """`reason` is the mismatch of the attempt that got furthest, the first of equals."""

    pattern: Pattern
    reason: str = ""
    depth: int = -1

    def around(self, anchor: fx.Node, step: int) -> Iterator[Binding]:
        """The complete bindings in which `anchor` is that step of the pattern."""
        binding = Binding()
        if self._bind_step(binding, step, anchor):
            yield from self._extend(binding)

    def _extend(self, binding: Binding) -> Iterator[Binding]:
        """Producers of bound calls are bound already; what is left reads something that is bound."""
        found = self._next_consumer(binding)
        if found is None:
            yield binding
            return
        step, candidates, what = found
        op = self.pattern.steps[step].op
        if not candidates:
            self._note(binding, f"{what} that is a call of {op}")
        for node in candidates:
            trial = binding.copy()
            if self._bind_step(trial, step, node):
                yield from self._extend(trial)

    def _next_consumer(self, binding: Binding) -> tuple[int, list[fx.Node], str] | None:
        for index, step in enumerate(self.pattern.steps):
            if index in binding.steps:
                continue
            for position, operand in enumerate(step.operands):
                value = self._bound_value(binding, operand)
                if value is not None:
                    readers = [n for n in value.users if is_step(n, step) and n not in binding.steps.values()
                               and _stands_at(value, position, n, step)]
                    return index, readers, f"%{value.name} has no reader"
        return self._next_beside(binding)

    def _next_beside(self, binding: Binding) -> tuple[int, list[fx.Node], str] | None:
        """A step that shares no value with the bound ones is looked for among the operands of their readers."""
        index = next((i for i in range(len(self.pattern.steps)) if i not in binding.steps), None)
        if index is None:
            return None
        taken = binding.steps.values()
        readers = dict.fromkeys(u for n in taken for u in n.users if u not in taken)
        beside = dict.fromkeys(n for r in readers for n in r.all_input_nodes if n not in taken)
        step, last = self.pattern.steps[index], list(taken)[-1]
        return index, [n for n in beside if is_step(n, step)], f"no reader of %{last.name} has an operand"

    def _bound_value(self, binding: Binding, operand: Operand) -> fx.Node | None:
        """The node that stands for an operand: a result of a bound call, or the tensor of a bound argument."""
        value: object = None
        if isinstance(operand, Var):
            value = binding.variables.get(operand.name)
        elif isinstance(operand, Ref) and operand.step in binding.steps:
            value = result_of(binding.steps[operand.step], operand, self.pattern)
        return value if isinstance(value, fx.Node) else None

    def _bind_step(self, binding: Binding, index: int, node: fx.Node) -> bool:
        step = self.pattern.steps[index]
        if index in binding.steps:
            return binding.steps[index] is node or self._fail(binding, f"two calls stand for one {step.op}")
        if not is_step(node, step):
            return self._fail(binding, f"%{node.name} is {describe(node)}, not a call of {step.op}")
        if node in binding.steps.values():
            return self._fail(binding, f"%{node.name} stands for two calls of {step.op}")
        values = operands_of(node)
        if len(values) != len(step.operands):
            return self._fail(binding, f"%{node.name} has {len(values) - 1} sizes, not {len(step.operands) - 1}")
        binding.steps[index] = node
        for order in [values, [values[1], values[0], *values[2:]]] if step.op in EITHER_ORDER else [values]:
            trial = binding.copy()
            if all(self._bind_operand(trial, operand, value, f"argument {position} of %{node.name}")
                   for position, (operand, value) in enumerate(zip(step.operands, order, strict=True))):
                binding.take(trial)
                return True
        return False

    def _bind_operand(self, binding: Binding, operand: Operand, value: object, where: str) -> bool:
        match operand:
            case AnyNumber():
                return True
            case Literal(value=wanted):
                same = type(value) is type(wanted) and value == wanted
                return same or self._fail(binding, f"{where} is {shown(value)}, not {shown(wanted)}")
            case Var(name=name):
                known = binding.variables.setdefault(name, value)
                same = known is value or (type(known) is type(value) and not isinstance(value, fx.Node)
                                          and known == value)
                return same or self._fail(binding, f"{where} is {shown(value)}, elsewhere {name} is {shown(known)}")
            case Ref():
                return self._bind_result(binding, operand, value, where)

    def _bind_result(self, binding: Binding, operand: Ref, value: object, where: str) -> bool:
        wanted = self.pattern.steps[operand.step].op
        if not isinstance(value, fx.Node):
            return self._fail(binding, f"{where} is {shown(value)}, not a result of {wanted}")
        node = value
        if not self.pattern.single(operand.step):
            if value.target is not operator.getitem or value.args[1] != operand.output:
                return self._fail(binding, f"{where} is {shown(value)}, not result {operand.output} of {wanted}")
            (node,) = value.all_input_nodes
        return self._bind_step(binding, operand.step, node)

    def _fail(self, binding: Binding, reason: str) -> bool:
        self._note(binding, reason)
        return False

    def _note(self, binding: Binding, reason: str) -> None:
        if len(binding.steps) > self.depth:
            self.depth, self.reason = len(binding.steps), reason


def is_step(node: fx.Node, step: Step) -> bool:
    return call_name(node) == step.op


def result_of(node: fx.Node, result: Ref, pattern: Pattern) -> fx.Node | None:
    """The node that carries one result of a call; None when nothing reads that member."""
    if pattern.single(result.step):
        return node
    return next((u for u in node.users if u.target is operator.getitem and u.args[1] == result.output), None)


def _stands_at(value: fx.Node, position: int, node: fx.Node, step: Step) -> bool:
    """Whether a call reads the value at an operand's place, or at the other one where order does not matter."""
    operands = operands_of(node)
    places = (0, 1) if step.op in EITHER_ORDER and position < 2 else (position,)
    return any(p < len(operands) and operands[p] is value for p in places)


def call_name(node: fx.Node) -> str | None:
    """`rms_norm` for a declared op, `view`, `aten.mul.Tensor` for another ATen call, None for what is no call."""
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return None
    return VIEW if node.target is torch.ops.aten.view.default else op_name(node) or str(node.target)


def operands_of(node: fx.Node) -> list[object]:
    """Arguments in schema order, defaults filled in; lists of ATen calls member by member, those of ops as a whole."""
    target = node.target
    assert isinstance(target, torch._ops.OpOverload)
    if target is torch.ops.aten._to_copy.default:  # the other arguments say where and how it lies, not what it is
        return [node.args[0], node.kwargs.get("dtype")]
    operands: list[object] = []
    for declared in target._schema.arguments:
        value = argument(node, declared.name)
        is_spread = isinstance(value, list | tuple) and target.namespace == "aten"
        operands += value if is_spread else [value]  # type: ignore[arg-type]
    return operands


def describe(node: fx.Node) -> str:
    if node.op == "placeholder":
        return f"the {node.meta['origin'].value} {node.meta['name']}"
    name = op_name(node)
    return f"a call of {name}" if name else f"a call of {getattr(node.target, '__name__', node.target)}"


def shown(value: object) -> str:
    return f"%{value.name}" if isinstance(value, fx.Node) else repr(value)


def sources(nodes: Sequence[fx.Node]) -> list[fx.Node]:
    """What the calls read and none of them makes, members of tuples resolved, in order."""
    made, found = set(nodes), dict[fx.Node, None]()
    for node in nodes:
        for source in node.all_input_nodes:
            owner = source.all_input_nodes[0] if source.target is operator.getitem else source
            if owner not in made:
                found[source] = None
    return list(found)
