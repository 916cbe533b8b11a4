"""The mutants: every guard, constraint and hook of the fusions deleted one at a time, and named edits of their sources.

Guards, constraints and hooks are read from the product, so that a new one is a new mutant without a line here.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import CodeType
from typing import Any

ENGINE = ("tests/passes/engine",)
SMALL = ("tests/passes/engine", "tests/passes/fuse", "--ignore=tests/passes/fuse/test_whole_programs.py",
         "--ignore=tests/passes/fuse/test_draft_programs.py")
SEARCH, GUARDS = "dsv41c.passes.engine.search", "dsv41c.passes.engine.guards"


@dataclass(frozen=True)
class Mutant:
    """`apply` changes this process for good; `tests` are the arguments of pytest that must then fail."""

    kind: str
    name: str
    tests: tuple[str, ...]
    apply: Callable[[], None]


@dataclass(frozen=True)
class Edit:
    """One place of a module's source, which must hold `old` exactly once."""

    module: str
    name: str
    old: str
    new: str


EDITS = (
    Edit(SEARCH, "a literal of another value", "type(value) is type(wanted) and value == wanted", "True"),
    Edit(SEARCH, "a literal of another type", "type(value) is type(wanted) and value == wanted", "value == wanted"),
    Edit(SEARCH, "one argument with two values", "elsewhere {name} is {shown(known)}\")",
         "elsewhere {name} is {shown(known)}\") or True"),
    Edit(SEARCH, "an argument that is no result",
         "return self._fail(binding, f\"{where} is {shown(value)}, not a result of {wanted}\")", "return True"),
    Edit(SEARCH, "another result of the call", " or value.args[1] != operand.output", ""),
    Edit(SEARCH, "a value that is no member", "value.target is not operator.getitem or ", ""),
    Edit(SEARCH, "two calls for one step", "return binding.steps[index] is node or", "return True or"),
    Edit(SEARCH, "a call of another op", "if not is_step(node, step):\n", "if False:\n"),
    Edit(SEARCH, "one call for two steps", "if node in binding.steps.values():\n", "if False:\n"),
    Edit(SEARCH, "a view of another rank", "if len(values) != len(step.operands):\n", "if False:\n"),
    Edit(GUARDS, "a call passed on the way up", "range(there, here) if there < here", "range(0) if there < here"),
    Edit(GUARDS, "a call passed on the way down", "else range(here + 1, there)", "else range(0)"),
    Edit(GUARDS, "a read passed by a write", "(r in writes_b) or (r in writes_a and r in uses_b)", "r in writes_b"),
    Edit(GUARDS, "a write passed by a read", "(r in writes_b) or (r in writes_a and r in uses_b)",
         "r in writes_a and r in uses_b"),
    Edit(GUARDS, "a tensor that is None", "if value is None and str(declared.type) == \"Tensor\":", "if False:"),
    Edit(GUARDS, "arguments that the op refuses", "return f\"the fused op takes no such arguments: {str(error).spl",
         "return None and f\"the fused op takes no such arguments: {str(error).spl"),
    Edit(GUARDS, "a result of another shape", "text_of(node.meta[\"val\"]) != text:", "False:"),
    Edit(GUARDS, "a source at the very place", "site.position[source] >= site.position[site.at]",
         "site.position[source] > site.position[site.at]"),
    Edit("dsv41c.passes.engine.fusion", "a binding behind a refused one", "            refused = refused or reason\n",
         "            refused = refused or reason\n            break\n"),
)


def edits() -> Iterator[Mutant]:
    for edit in EDITS:
        yield Mutant(edit.module.rpartition(".")[2], edit.name, SMALL, Installed(edit).install)


def deletion(kind: str, name: str, tests: tuple[str, ...]) -> Mutant:
    """One entry of `listed`. The product is imported where the mutant is applied, not here."""
    return Mutant(kind, name, tests, DELETE[kind](name))


def listed() -> list[tuple[str, str, tuple[str, ...]]]:
    """Kind, name and tests of everything that can be deleted. Imports the product: call it in another process."""
    from dsv41c.compiler.ops.catalog import OPS
    from dsv41c.compiler.pipeline import PIPELINE
    from dsv41c.passes.engine.fusion import Fusion
    from dsv41c.passes.engine.guards import GUARDS

    found = [("guard", g.__name__, ENGINE) for g in GUARDS]
    for step in (s for s in PIPELINE if isinstance(s, Fusion)):
        tests = (f"tests/passes/fuse/test_{step.name}.py",)
        if type(step).stands_against is not Fusion.stands_against:
            found.append(("hook", step.name, tests))
        for op in step.ops:
            found += [("constraint", f"{op} {number}: {c.text}", tests) for number, c in enumerate(OPS[op].constraints)]
    return found


def _delete_guard(name: str) -> Callable[[], None]:
    def apply() -> None:
        guard: Any = getattr(importlib.import_module(GUARDS), name)
        code: CodeType = (lambda site: None).__code__
        guard.__code__ = code  # the function stays the one that tests and engine refer to
    return apply


def _delete_hook(name: str) -> Callable[[], None]:
    def apply() -> None:
        from dsv41c.compiler.pipeline import PIPELINE

        delattr(type(next(step for step in PIPELINE if step.name == name)), "stands_against")
    return apply


def _delete_constraint(name: str) -> Callable[[], None]:
    def apply() -> None:
        from dsv41c.compiler.ops.catalog import OPS

        op, _, number = name.partition(":")[0].partition(" ")
        kept = tuple(c for place, c in enumerate(OPS[op].constraints) if place != int(number))
        assert replace(OPS[op], constraints=kept) != OPS[op]
        object.__setattr__(OPS[op], "constraints", kept)
    return apply


DELETE = {"guard": _delete_guard, "hook": _delete_hook, "constraint": _delete_constraint}


@dataclass
class Installed(importlib.abc.MetaPathFinder):
    """Imports one module from its edited source."""

    edit: Edit

    def install(self) -> None:
        assert self.edit.module not in sys.modules, self.edit.module
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name != self.edit.module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        assert spec is not None and spec.origin is not None
        spec.loader = _EditedLoader(name, spec.origin, self.edit)
        return spec


class _EditedLoader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, path: str, edit: Edit) -> None:
        super().__init__(name, path)
        self._edit = edit

    def get_code(self, fullname: str) -> CodeType:
        """Never from the cache, and never into it."""
        source = self.get_source(fullname)
        assert source is not None
        return compile(edited(source, self._edit), self.path, "exec", dont_inherit=True)


def edited(source: str, edit: Edit) -> str:
    if source.count(edit.old) != 1:
        raise SystemExit(f"{edit.module} holds {edit.old!r} {source.count(edit.old)} times: correct the list of edits")
    return source.replace(edit.old, edit.new)
