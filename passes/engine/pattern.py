"""A fused op's composition as a pattern: the primitive calls it replaces, with the op's arguments as variables."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from dsv41c.compiler.ops.spec import OpSpec

VIEW = "view"  # operands: the tensor and each size; all shapes are compared when the match is complete


@dataclass(frozen=True)
class Var:
    """An argument of the fused op: the same thing wherever it stands in the pattern."""

    name: str


@dataclass(frozen=True)
class Ref:
    """Result `output` of an earlier step."""

    step: int
    output: int


@dataclass(frozen=True)
class Literal:
    value: object


@dataclass(frozen=True)
class AnyNumber:
    """A number computed from shapes or attributes; compared when the match is complete."""


Operand = Var | Ref | Literal | AnyNumber


@dataclass(frozen=True)
class Step:
    """One call of the pattern. `num_outputs` is 0 for a call that only writes."""

    op: str
    operands: tuple[Operand, ...]
    num_outputs: int


@dataclass(frozen=True)
class Pattern:
    """`flags`: arguments that this variant fixes (of a fused op its bools); every other argument is a variable."""

    op: str
    flags: Mapping[str, object]
    steps: tuple[Step, ...]
    results: tuple[Operand, ...]

    @property
    def inner(self) -> frozenset[Ref]:
        """Results of steps that the fused op does not give back."""
        made = {Ref(i, o) for i, step in enumerate(self.steps) for o in range(step.num_outputs)}
        return frozenset(made - {r for r in self.results if isinstance(r, Ref)})

    def single(self, step: int) -> bool:
        return self.steps[step].num_outputs == 1


def patterns_of(spec: OpSpec, ops: Mapping[str, OpSpec]) -> Iterator[Pattern]:
    """One pattern for each setting of the op's bool attributes, `True` first, but those that replace a single call."""
    assert spec.composition is not None, spec.name
    arguments = spec.parsed().arguments
    flags = [a.name for a in arguments if str(a.type) == "bool"]
    for setting in itertools.product((True, False), repeat=len(flags)):
        values = dict(zip(flags, setting, strict=True))
        recorder = _Recorder(ops)
        given = [values[a.name] if a.name in values else _start(a, recorder) for a in arguments]
        made = spec.composition(recorder, *given)
        results = () if made is None else tuple(made) if isinstance(made, tuple | list) else (made,)
        if len(recorder.steps) > 1:
            yield Pattern(spec.name, values, tuple(recorder.steps), tuple(_operand(r) for r in results))


def _start(argument: Any, recorder: _Recorder) -> Any:
    return _Value(recorder, Var(argument.name)) if "Tensor" in str(argument.type) else _Number(Var(argument.name))


class _Number:
    """A number that is not known yet: arithmetic on it gives another one."""

    def __init__(self, operand: Operand) -> None:
        self.operand = operand

    def _unknown(self, *_: object) -> _Number:
        return _Number(AnyNumber())

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __floordiv__ = __rfloordiv__ = __neg__ = _unknown


class _Shape:
    def __getitem__(self, _: int) -> _Number:
        return _Number(AnyNumber())


class _Value:
    """A tensor while a composition is recorded."""

    shape = _Shape()

    def __init__(self, recorder: _Recorder, operand: Operand) -> None:
        self._recorder, self.operand = recorder, operand

    def view(self, *sizes: Any) -> _Value:
        given = tuple(_operand(s) if isinstance(s, _Number) else AnyNumber() for s in sizes)
        return self._recorder.add(VIEW, (self.operand, *given), 1)[0]


@dataclass
class _Recorder:
    """Stands for the namespace of ops."""

    ops: Mapping[str, OpSpec]
    steps: list[Step] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        schema = self.ops[name].parsed()

        def call(*args: Any) -> Any:
            made = self.add(name, tuple(_operand(a) for a in args), len(schema.returns))
            return None if not made else made[0] if len(made) == 1 else tuple(made)

        return call

    def add(self, op: str, operands: tuple[Operand, ...], num_outputs: int) -> list[_Value]:
        self.steps.append(Step(op, operands, num_outputs))
        return [_Value(self, Ref(len(self.steps) - 1, o)) for o in range(num_outputs)]


def _operand(value: Any) -> Operand:
    return value.operand if isinstance(value, _Value | _Number) else Literal(value)
