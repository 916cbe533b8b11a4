"""Measured sizes of steps (`--histogram FILE`): how often each method ran how many rows, read, checked and stored."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dsv41c.compiler.option_checks import bad, check_method, integer
from dsv41c.runtime.plan.errors import Dsv41cError

OPTION = "--histogram"
MOST_COUNT = 2**62 - 1
_NEEDED = 'JSON like {"decode": {"1": 10, "2": 4}}'
_CORRECT = "correct the file"


def read_histogram(path: Path) -> dict[str, dict[int, int]]:
    """Counts by rows, ascending, by method, of a file `{"decode": {"1": 10, ...}, ...}`. E0901 where it is no such
    file."""
    try:
        root = json.loads(path.read_bytes(), object_pairs_hook=_no_twins)
    except (OSError, ValueError, RecursionError) as error:
        raise _in_file(path, str(error), _NEEDED) from error
    if not isinstance(root, dict) or not root:
        raise _in_file(path, "no object of methods", _NEEDED)
    try:
        return {name: _sizes(name, counts) for name, counts in root.items()}
    except Dsv41cError as error:
        raise Dsv41cError(error.code, error.subject, where=str(path), found=error.found, needed=error.needed,
                          do=error.do) from error


def words_of(histogram: Mapping[str, Mapping[int, int]]) -> tuple[str, ...]:
    """As options store it: `decode=1:10,2:4`, one a method."""
    return tuple(f"{name}=" + ",".join(f"{rows}:{count}" for rows, count in sizes.items())
                 for name, sizes in histogram.items())


def histogram_of(words: Sequence[str]) -> dict[str, dict[int, int]]:
    """What `words_of` wrote."""
    found: dict[str, dict[int, int]] = {}
    for text in words:
        name, _, pairs = text.partition("=")
        check_method(OPTION, name, found)
        found[name] = {}
        for pair in pairs.split(","):
            rows, _, count = pair.partition(":")
            found[name][integer(OPTION, rows)] = integer(OPTION, count)
    return found


def check_sizes(name: str, sizes: Mapping[int, int], bound: int | None) -> None:
    """E0901 for rows that no step of the method has (above `bound`, where there is one) and for bad counts."""
    option = f"{OPTION} {name}"
    for rows, count in sizes.items():
        if rows < 1:
            raise bad(option, f"size {rows}", f"1 to {bound}, the method's bound (nearest: 1)" if bound is not None
                      else "at least 1 (nearest: 1)", _CORRECT)
        if bound is not None and rows > bound:
            raise bad(option, f"size {rows}", f"1 to {bound}, the method's bound (nearest: {bound})",
                      "measure with the bounds that are compiled")
        if not 0 <= count <= MOST_COUNT:
            near = min(max(count, 0), MOST_COUNT)
            raise bad(option, f"count {count} of size {rows}", f"0 to {MOST_COUNT} (nearest: {near})", _CORRECT)


def _sizes(name: str, counts: Any) -> dict[int, int]:
    check_method(OPTION, name)
    if not isinstance(counts, dict) or not counts:
        raise bad(OPTION, f"{name}: {json.dumps(counts)[:40]}", _NEEDED, "give its sizes with their counts")
    sizes: dict[int, int] = {}
    for text, count in counts.items():
        rows = integer(OPTION, text)
        if rows in sizes:
            raise bad(OPTION, f"{name}: size {rows} twice", "each size once", _CORRECT)
        if type(count) is not int:
            raise bad(OPTION, f"{name}, size {rows}: {json.dumps(count)[:40]}", "a count, an integer", _CORRECT)
        sizes[rows] = count
    check_sizes(name, sizes, None)
    return dict(sorted(sizes.items()))


def _no_twins(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"key {key} twice")
        found[key] = value
    return found


def _in_file(path: Path, found: str, needed: str) -> Dsv41cError:
    return Dsv41cError("DSV41C-E0901", f"option {OPTION}", where=str(path), found=found, needed=needed, do=_CORRECT)
