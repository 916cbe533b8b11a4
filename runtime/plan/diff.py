"""Lines that say where two plans differ; no lines means that they are the same plan."""

from __future__ import annotations

import dataclasses

from dsv41c.runtime.plan import expr
from dsv41c.runtime.plan.schema import Plan


def diff(a: Plan, b: Plan) -> list[str]:
    """One line per difference: the path, then old -> new. Named lists are compared by name, not position."""
    lines: list[str] = []
    _compare(a, b, "plan", lines)
    return lines


def _compare(a: object, b: object, path: str, lines: list[str]) -> None:
    if isinstance(a, tuple) and isinstance(b, tuple):
        _compare_sequences(a, b, path, lines)
    elif isinstance(a, dict) and isinstance(b, dict):
        _compare_entries({f".{k}": v for k, v in a.items()}, {f".{k}": v for k, v in b.items()}, path, lines)
    elif type(a) is type(b) and dataclasses.is_dataclass(a) and not isinstance(a, (type, expr.Binary)):
        for field in dataclasses.fields(a):
            _compare(getattr(a, field.name), getattr(b, field.name), f"{path}.{field.name}", lines)
    elif type(a) is not type(b) or a != b:
        lines.append(f"{path}: {show(a)} -> {show(b)}")


def _compare_sequences(a: tuple[object, ...], b: tuple[object, ...], path: str, lines: list[str]) -> None:
    names_a, names_b = _names(a), _names(b)
    if names_a is None or names_b is None:
        names_a, names_b = [str(i) for i in range(len(a))], [str(i) for i in range(len(b))]
    entries_a = {f"[{name}]": item for name, item in zip(names_a, a, strict=True)}
    entries_b = {f"[{name}]": item for name, item in zip(names_b, b, strict=True)}
    _compare_entries(entries_a, entries_b, path, lines)
    kept = [name for name in names_a if f"[{name}]" in entries_b]
    moved = [name for name in names_b if f"[{name}]" in entries_a]
    if kept != moved:
        lines.append(f"{path}: order {' '.join(kept)} -> {' '.join(moved)}")


def _compare_entries(a: dict[str, object], b: dict[str, object], path: str, lines: list[str]) -> None:
    for key in [*a, *(key for key in b if key not in a)]:
        if key not in b:
            lines.append(f"{path}{key}: removed {show(a[key])}")
        elif key not in a:
            lines.append(f"{path}{key}: added {show(b[key])}")
        else:
            _compare(a[key], b[key], path + key, lines)


def _names(items: tuple[object, ...]) -> list[str] | None:
    """The names of the items when every one has its own; else None and positions are compared."""
    names = [str(name) for item in items if (name := getattr(item, "name", None))]
    return names if len(names) == len(items) and len(set(names)) == len(names) else None


def show(value: object) -> str:
    """A short form of a part of the plan."""
    if isinstance(value, (expr.Binary, int, str)):
        return str(expr.to_json(value))
    if isinstance(value, tuple):
        text = "[" + ", ".join(show(item) for item in value) + "]"
        return text if len(text) <= 80 else f"[{len(value)} items]"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        name = getattr(value, "name", None)
        fields = ", ".join(f"{f.name}={show(getattr(value, f.name))}" for f in dataclasses.fields(value))
        text = f"{type(value).__name__}({fields})"
        return text if len(text) <= 80 else f"{type(value).__name__}({name or '...'})"
    return str(value)
