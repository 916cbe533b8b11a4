"""Raising: a pass that replaces ATen calls which spell a declared op by a call of the op.

A spelling is a function of the op's arguments in plain torch. Traced on an example it is the pattern that is searched;
traced again on the arguments that were found it must give the very calls that stand in the program.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import fx

from dsv41c.compiler.aten_form import trace
from dsv41c.compiler.ops.catalog import OPS
from dsv41c.compiler.program import Program
from dsv41c.passes.base import GraphResult, Match, Note, Pass, PassResult, Refusal, Stage, per_method
from dsv41c.passes.engine.aten import NormalForm, same_shape
from dsv41c.passes.engine.fusion import copied
from dsv41c.passes.engine.guards import (
    Site,
    call_arguments,
    constraint_fails,
    make_site,
    shapes_differ,
    source_comes_too_late,
)
from dsv41c.passes.engine.pattern import AnyNumber, Literal, Operand, Pattern, Ref, Step, Var
from dsv41c.passes.engine.search import Binding, Search, call_name, operands_of, shown

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


@dataclass(frozen=True)
class Raising(Pass):
    """`op`: the declared op. `shapes`: sizes of tensor arguments by letters, "..." for any; equal letters are equal
    sizes, which broadcasting would hide."""

    stage: ClassVar[Stage] = Stage.RAISE
    requires: ClassVar[tuple[str, ...]] = ("normalize_aten",)
    op: ClassVar[str]
    shapes: ClassVar[Mapping[str, str]] = {}
    regrouped: ClassVar[str | None] = None  # the argument whose last size the spelling leaves cut into groups
    spellings: ClassVar[tuple[Spelling, ...]]

    def apply(self, program: Program) -> PassResult:
        anchors = {s.anchor for s in self.spellings}
        if not any(call_name(n) in anchors for m in program.methods.values() for n in m.graph.nodes):
            return PassResult(program, 0)
        return per_method(program, self._rewrite)

    def solve(self, found: Mapping[str, Any], anchor: fx.Node) -> Mapping[str, Any]:
        """Arguments that no operand of the pattern shows, from those that were found."""
        return {}

    def chosen(self, anchor: fx.Node) -> tuple[Spelling, ...]:
        """The spellings to try at a call."""
        return tuple(s for s in self.spellings if s.anchor == call_name(anchor))

    def finish(self, graph: fx.Graph, call: fx.Node) -> None:
        """What is left to do around a new call."""

    def _rewrite(self, method: str, graph: fx.Graph) -> GraphResult:
        copy = copied(graph)
        notes = [self._raise(method, copy, n) for n in list(copy.nodes) if not n._erased and self.chosen(n)]
        copy.lint()
        return GraphResult(copy, sum(isinstance(n, Match) for n in notes), tuple(notes))

    def _raise(self, method: str, graph: fx.Graph, anchor: fx.Node) -> Note:
        position: dict[fx.Node, float] = {node: place for place, node in enumerate([*graph.nodes, graph._root])}
        reasons = []
        for spelling in self.chosen(anchor):
            for pattern in patterns(self.op, spelling):
                for step in (i for i, s in enumerate(pattern.steps) if s.op == spelling.anchor):
                    site, reason = self._site(spelling, pattern, step, anchor, position)
                    if site is not None:
                        call, taken = _replace(graph, site)
                        self.finish(graph, call)
                        return Match(method, anchor.name, call.name, taken)
                    reasons.append(reason)
        return Refusal(method, anchor.name, max(reasons, key=lambda r: r[0])[1])

    def _site(self, spelling: Spelling, pattern: Pattern, step: int, anchor: fx.Node,
              position: dict[fx.Node, float]) -> tuple[Site | None, tuple[int, str]]:
        search = Search(pattern)
        binding = search.around(anchor, step)
        if binding is None:
            return None, (search.depth, search.reason)
        if self.regrouped is not None:
            self._reshape(binding, pattern, position)
        given = {**binding.variables, **pattern.flags}
        binding.variables.update(self.solve(given, anchor))
        complete = len(pattern.steps) + 1
        missing = [a.name for a in OPS[self.op].parsed().arguments if a.name not in {**given, **binding.variables}]
        if missing:
            return None, (complete, f"nothing tells {missing[0]}")
        site = make_site(OPS[self.op], pattern, binding, position)
        for guard in (self._shapes_do_not_fit, source_comes_too_late, constraint_fails,
                      *(() if self.regrouped else (shapes_differ,))):
            reason = guard(site)
            if reason is not None:
                return None, (complete, reason)
        reason = _calls_differ(spelling, site)
        return (site, (0, "")) if reason is None else (None, (complete, reason))

    def _reshape(self, binding: Binding, pattern: Pattern, position: dict[fx.Node, float]) -> None:
        assert self.regrouped is not None
        source, first = binding.variables[self.regrouped], pattern.results[0]
        assert isinstance(source, fx.Node) and isinstance(first, Ref)
        *rest, count, size = binding.steps[first.step].meta["val"].shape
        wanted, there = [*rest, count * size], source.meta["val"].shape
        if same_shape(wanted, there) or math.prod(map(_size, wanted)) != math.prod(map(_size, there)):
            return
        form = NormalForm(source.graph, follows_rows)
        with source.graph.inserting_after(source):
            view = form.viewed(source, wanted)
        position.setdefault(view, position[source] + 0.5)
        binding.variables[self.regrouped] = view

    def _shapes_do_not_fit(self, site: Site) -> str | None:
        sizes: dict[str, int] = {}
        for declared, value in zip(site.spec.parsed().arguments, call_arguments(site), strict=True):
            letters = self.shapes.get(declared.name, "...").split()
            if not isinstance(value, fx.Node) or letters == ["..."]:
                continue
            shape = [_size(s) for s in value.meta["val"].shape]
            if letters[0] == "...":
                letters, shape = letters[1:], shape[len(shape) - len(letters) + 1:]
            if len(letters) != len(shape) or any(sizes.setdefault(x, s) != s for x, s in zip(letters, shape,
                                                                                          strict=True)):
                return (f"{declared.name} of {site.spec.name} is {shown(value)} {shape}, not "
                        f"{self.shapes[declared.name]}")
        return None


def _calls_differ(spelling: Spelling, site: Site) -> str | None:
    """The spelling on the arguments that were found must be the calls that stand there, numbers and shapes included."""
    arguments = tuple(_example(a) for a in call_arguments(site))
    try:
        wanted = _exact(spelling, arguments)
    except Exception as error:
        return f"the spelling takes no such arguments: {(str(error) or repr(error)).splitlines()[0]}"
    if [s.op for s in wanted] != [s.op for s in site.pattern.steps]:
        return f"the spelling of {site.spec.name} is another list of calls for these arguments"
    for index, step in enumerate(wanted):
        node = site.binding.steps[index]
        for place, (operand, value) in enumerate(zip(step.operands, _concrete(node), strict=False)):
            if isinstance(operand, Literal) and not isinstance(value, fx.Node) and operand.value != value:
                return f"argument {place} of %{node.name} is {shown(value)}, not {operand.value!r}"
            if isinstance(operand, Ref) and operand != site.pattern.steps[index].operands[place]:
                return f"the spelling of {site.spec.name} has another %{node.name} for these arguments"
    return None


def _concrete(node: fx.Node) -> list[object]:
    return [-1 if isinstance(v, torch.SymInt) else v for v in operands_of(node)]


def _example(value: Any) -> Any:
    """A key of a meta tensor of the same shape at ROWS rows; everything else as it is."""
    if not isinstance(value, fx.Node):
        return value
    tensor = value.meta["val"]
    return tuple(_size(s) for s in tensor.shape), tensor.dtype


def _size(size: Any) -> int:
    if isinstance(size, int):
        return size
    expression = size.node.expr
    return int(expression.xreplace({s: ROWS for s in expression.free_symbols}))


@functools.cache
def _exact(spelling: Spelling, arguments: tuple[Any, ...]) -> tuple[Step, ...]:
    given = [torch.empty(a[0], dtype=a[1], device="meta")
             if isinstance(a, tuple) else a for a in arguments]
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
    NormalForm(graph, follows_rows).run()
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


def _put(old: fx.Node, new: fx.Node) -> None:
    """`new` for every reader of `old`, through a view where the shapes differ."""
    if same_shape(old.meta["val"].shape, new.meta["val"].shape):
        old.replace_all_uses_with(new)
        return
    form = NormalForm(new.graph, follows_rows)
    with new.graph.inserting_before(new.next):
        view = form.viewed(new, old.meta["val"].shape)
        for user in list(old.users):
            if call_name(user) == "view":
                user.replace_all_uses_with(form.viewed(new, user.meta["val"].shape))
                user.graph.erase_node(user)
        old.replace_all_uses_with(view, delete_user_cb=lambda user: user is not view)
    if not view.users:
        view.graph.erase_node(view)


def _replace(graph: fx.Graph, site: Site) -> tuple[fx.Node, tuple[str, ...]]:
    """Put the op's call into the graph. Calls that others read stay: they are pure."""
    target = getattr(torch.ops.dsv41c, site.spec.name).default
    with graph.inserting_before(site.at):
        call = graph.create_node("call_function", target, tuple(call_arguments(site)), name=site.spec.name)
        values = site.spec.fake(*[a.meta["val"] if isinstance(a, fx.Node) else a for a in call.args])
        call.meta["val"] = values
        for number, old in enumerate(site.results):
            if old is None:
                continue
            new = call
            if isinstance(values, tuple | list):
                new = graph.call_function(operator.getitem, (call, number))
                new.meta["val"] = values[number]
            _put(old, new)
    taken = []
    for node in sorted(site.taken, key=site.position.__getitem__, reverse=True):
        if not node.users:
            taken.append(node.name)
            graph.erase_node(node)
    return call, tuple(reversed(taken))
