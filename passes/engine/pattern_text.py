"""A pattern as readable text: the calls that a fused op replaces, with its arguments as they stand in its schema."""

from __future__ import annotations

from collections.abc import Iterator

from dsv41c.passes.engine.pattern import AnyNumber, Literal, Operand, Pattern, Ref, Var


def pattern_text(pattern: Pattern) -> str:
    """A line for each call, then what the fused op gives. `?` is a number that shapes decide."""
    return "\n".join(_lines(pattern))


def _lines(pattern: Pattern) -> Iterator[str]:
    if pattern.flags:
        yield "# " + ", ".join(f"{name}={value}" for name, value in pattern.flags.items())
    for number, step in enumerate(pattern.steps):
        names = ", ".join(_shown(Ref(number, output), pattern) for output in range(step.num_outputs))
        call = f"{step.op}({', '.join(_shown(operand, pattern) for operand in step.operands)})"
        yield f"{names} = {call}" if names else call
    yield f"return {', '.join(_shown(result, pattern) for result in pattern.results)}".rstrip()


def _shown(operand: Operand, pattern: Pattern) -> str:
    match operand:
        case Var(name=name):
            return name
        case Ref(step=step, output=output):
            return f"%{step}" if pattern.single(step) else f"%{step}.{output}"
        case Literal(value=value):
            return repr(value)
        case AnyNumber():
            return "?"
