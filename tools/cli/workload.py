"""The workload that `dsv41c plan --budget` plans for: rows of steps by method, from a JSON file (E0901)."""

from __future__ import annotations

import difflib
import json
from pathlib import Path

from dsv41c.graphs.workload import DEFAULT_HISTOGRAM, Histogram
from dsv41c.runtime.plan.errors import Dsv41cError

MOST = 10**12  # of a count, so that sums of costs stay far from any limit


def read_histogram(path: Path | None) -> Histogram:
    """`{"decode": {"1": 300, "8": 120}, "encoder": {"512": 20}}`: how often a method runs how many rows."""
    if path is None:
        return DEFAULT_HISTOGRAM
    try:
        root = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _bad(path, str(error), "a readable file of JSON") from error
    if not isinstance(root, dict) or not root:
        raise _bad(path, f"a JSON {type(root).__name__}", "an object with a method's name as key")
    return {method: _sizes(path, method, sizes) for method, sizes in root.items()}


def _sizes(path: Path, method: str, sizes: object) -> dict[int, int]:
    if method not in DEFAULT_HISTOGRAM:
        near = difflib.get_close_matches(method, DEFAULT_HISTOGRAM, n=1, cutoff=0.0)[0]
        raise _bad(path, f"method {method!r}", f"methods out of {', '.join(DEFAULT_HISTOGRAM)}",
                   f"did you mean {near}?")
    if not isinstance(sizes, dict):
        raise _bad(path, f"{method}: a JSON {type(sizes).__name__}", "an object of rows and counts")
    for rows, count in sizes.items():
        if not (rows.isascii() and rows.isdecimal() and len(rows) < 9 and int(rows) > 0):
            raise _bad(path, f"{method}: {rows!r} rows", "a number of at least 1", "the nearest legal value is 1")
        if type(count) is not int or not 0 <= count <= MOST:
            raise _bad(path, f"{method}, {rows} rows: count {count!r}", f"an integer from 0 to {MOST}",
                       "the nearest legal value is 0")
    return {int(rows): count for rows, count in sizes.items()}


def _bad(path: Path, found: str, needed: str, do: str = "correct the file") -> Dsv41cError:
    return Dsv41cError("DSV41C-E0901", "option --histogram", where=str(path), found=found, needed=needed, do=do)
