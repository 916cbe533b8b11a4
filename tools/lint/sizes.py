"""Sizes of files, functions and classes by room; over the stop without a line in allow.toml is a failure."""

from __future__ import annotations

import ast
import statistics
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

ROOT = Path(__file__).parents[2]
ALLOW = Path(__file__).with_name("allow.toml")
ROOMS = ("compiler", "passes", "graphs", "runtime", "tools", "tests")
CPP = (".cc", ".h", ".cu", ".cuh")
GENERATED = ("runtime/cpp/include/dsv41c/plan_generated.h",)


@dataclass(frozen=True)
class Rule:
    aim: int
    stop: int


RULES = {
    "file": Rule(150, 400), "C++ file": Rule(150, 500), "function": Rule(25, 60), "class": Rule(100, 250),
    "parameters": Rule(4, 6), "imports": Rule(6, 10),
}


@dataclass(frozen=True)
class Size:
    """`place` is the key of an exception: `compiler/lower.py`, or `compiler/lower.py:lower` for a part of it."""

    kind: str
    place: str
    value: int

    @property
    def key(self) -> str:
        return f"{self.kind} {self.place}"


def main() -> int:
    sizes = [size for path in sources() for size in sizes_of(path)]
    reasons: dict[str, str] = tomllib.loads(ALLOW.read_text())
    over = sorted((size for size in sizes if size.value > RULES[size.kind].stop), key=lambda size: size.key)
    print_table(sizes)
    excused: set[Size] = set()
    failures = []
    for pattern, reason in reasons.items():
        matching = [size for size in over if fnmatchcase(size.key, pattern)]
        excused.update(matching)
        if matching:
            largest = max(size.value for size in matching)
            print(f"allowed  {pattern}: {len(matching)} places, largest {largest} ({reason})")
        else:
            failures.append(f"allow.toml: nothing needs {pattern!r} any more")
    failures += [f"{s.key}: {s.value}, stop is {RULES[s.kind].stop}" for s in over if s not in excused]
    for failure in failures:
        print(f"FAILED   {failure}", file=sys.stderr)
    return 1 if failures else 0


def sources() -> Iterator[Path]:
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*")):
            relative = path.relative_to(ROOT).as_posix()
            if path.suffix in (".py", *CPP) and relative not in GENERATED and path.is_file():
                yield path


def sizes_of(path: Path) -> Iterator[Size]:
    place = path.relative_to(ROOT).as_posix()
    text = path.read_text()
    yield Size("C++ file" if path.suffix in CPP else "file", place, text.count("\n"))
    if path.suffix == ".py":
        # The parameters of a test are its fixtures, and it imports what it tests.
        exempt = ("parameters", "imports") if place.startswith("tests/") else ()
        yield from (size for size in _python_sizes(ast.parse(text), place) if size.kind not in exempt)


def _python_sizes(tree: ast.Module, place: str) -> Iterator[Size]:
    modules = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    yield Size("imports", place, sum(name.startswith("dsv41c") for name in modules))
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield Size("class", f"{place}:{node.name}", _lines(node))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = [a for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
                         if a.arg not in ("self", "cls")]
            yield Size("function", f"{place}:{node.name}", _lines(node))
            yield Size("parameters", f"{place}:{node.name}", len(arguments))


def _lines(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def print_table(sizes: list[Size]) -> None:
    print(f"{'':12}{'count':>7}{'median':>8}{'p90':>6}{'max':>6}{'aim':>6}{'over':>6}{'stop':>6}")
    for kind, rule in RULES.items():
        values = sorted(size.value for size in sizes if size.kind == kind)
        if values:
            p90 = values[min(len(values) * 9 // 10, len(values) - 1)]
            over = sum(v > rule.aim for v in values)
            print(f"{kind:12}{len(values):7}{statistics.median_low(values):8}{p90:6}{values[-1]:6}"
                  f"{rule.aim:6}{over:6}{rule.stop:6}")


if __name__ == "__main__":
    sys.exit(main())
