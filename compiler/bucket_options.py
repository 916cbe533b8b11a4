"""Options about buckets: how they are written, and every check of them (E0901 with the nearest legal value)."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from dsv41c.compiler.bounds import RowOptions, method_bounds
from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.runtime.plan.format import BUCKET_POLICIES

DEFAULT_MAX_GRAPHS = 48
MOST_GRAPHS = 4096
DEFAULT_STEP = 128
STEP_POLICIES = ("powers", "step")
_METHODS = ("decode", "encoder", "decoder", "head")
_SMALL = 3  # sizes 1, 2 and 3 of each method stay when ladders are thinned, and its top


class BucketOptions(RowOptions, Protocol):
    """What is read of CompileOptions."""

    @property
    def bucket_policy(self) -> str: ...
    @property
    def buckets(self) -> tuple[str, ...]: ...
    @property
    def bucket_step(self) -> int | None: ...
    @property
    def histogram(self) -> tuple[str, ...]: ...
    @property
    def max_graphs(self) -> int: ...


def check_bucket_options(options: BucketOptions) -> None:
    """E0901. Every option that another policy needs is refused: it would be read by nobody."""
    policy = options.bucket_policy
    if policy not in BUCKET_POLICIES:
        raise _unknown("--bucket-policy", policy, BUCKET_POLICIES)
    for option, value, policies in (("--buckets", options.buckets, ("explicit",)),
                                    ("--bucket-step", options.bucket_step, STEP_POLICIES),
                                    ("--histogram", options.histogram, ("histogram",))):
        if value not in ((), None) and policy not in policies:
            raise _bad(option, f"with --bucket-policy {policy}", f"--bucket-policy {' or '.join(policies)}",
                       f"add --bucket-policy {policies[0]}")
    if policy == "explicit" and not options.buckets:
        raise _bad("--bucket-policy", "explicit without --buckets", "--buckets METHOD=1,2,3,...", "add --buckets")
    if policy == "histogram" and not options.histogram:
        raise _bad("--bucket-policy", "histogram without --histogram", "--histogram FILE", "add --histogram")
    bounds = method_bounds(options)
    if options.bucket_step is not None:
        _check_number("--bucket-step", options.bucket_step, 1, options.max_num_batched_tokens)
    least = sum(min(rows, _SMALL + 1) for rows in bounds.values())
    _check_number("--max-graphs", options.max_graphs, least, MOST_GRAPHS)
    for name, rungs in explicit_buckets(options).items():
        _check_rungs(name, rungs, bounds[name])
    for name, counts in histogram_counts(options).items():
        _check_counts(name, counts, bounds[name])


def explicit_buckets(options: BucketOptions) -> dict[str, tuple[int, ...]]:
    """`--buckets METHOD=1,2,3` by method."""
    found: dict[str, tuple[int, ...]] = {}
    for text in options.buckets:
        name, equals, numbers = text.partition("=")
        if not equals:
            raise _bad("--buckets", repr(text), "METHOD=1,2,3,...", "write decode=1,2,3")
        _check_method("--buckets", name, found)
        found[name] = tuple(_integer("--buckets", part) for part in numbers.split(","))
    return found


def histogram_counts(options: BucketOptions) -> dict[str, dict[int, int]]:
    """The measured sizes by method, out of the words that `read_histogram` wrote."""
    found: dict[str, dict[int, int]] = {}
    for text in options.histogram:
        name, _, pairs = text.partition("=")
        _check_method("--histogram", name, found)
        found[name] = {}
        for pair in pairs.split(","):
            rows, _, count = pair.partition(":")
            found[name][_integer("--histogram", rows)] = _integer("--histogram", count)
    return found


def read_histogram(path: Path) -> tuple[str, ...]:
    """The words of a file `{"decode": {"1": 10, ...}, ...}`, one a method. E0901 where it is no such file."""
    needed = 'JSON like {"decode": {"1": 10, "2": 4}}'
    try:
        root = json.loads(path.read_bytes(), object_pairs_hook=_no_twins)
    except (OSError, ValueError, RecursionError) as error:
        raise _bad("--histogram", f"{path.name}: {error}", needed, "correct the file") from error
    if not isinstance(root, dict) or not root:
        raise _bad("--histogram", f"{path.name}: no object of methods", needed, "correct the file")
    words = []
    for name, counts in root.items():
        _check_method("--histogram", name, ())
        if not isinstance(counts, dict) or not counts:
            raise _bad("--histogram", f"{name}: {json.dumps(counts)[:40]}", needed, "give its sizes with their counts")
        for rows, count in counts.items():
            _integer("--histogram", rows)
            if type(count) is not int:
                raise _bad("--histogram", f"{name}, size {rows}: {json.dumps(count)[:40]}", "a count, an integer",
                           "correct the file")
        ordered = sorted((int(rows), count) for rows, count in counts.items())
        words.append(f"{name}=" + ",".join(f"{rows}:{count}" for rows, count in ordered))
    return tuple(words)


def _no_twins(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"key {key} twice")
        found[key] = value
    return found


def _check_rungs(name: str, rungs: Sequence[int], bound: int) -> None:
    option = f"--buckets {name}"
    legal = sorted({min(max(r, 1), bound) for r in rungs})
    write = f"write {name}={','.join(map(str, legal))}"
    for before, rung in zip((0, *rungs), rungs, strict=False):
        if not 1 <= rung <= bound:
            raise _bad(option, f"bucket {rung}", f"1 to {bound}, the method's bound (nearest: "
                       f"{min(max(rung, 1), bound)})", write)
        if rung == before:
            raise _bad(option, f"bucket {rung} twice", "each bucket once", write)
        if rung < before:
            raise _bad(option, f"{rung} after {before}", "ascending buckets", write)


def _check_counts(name: str, counts: Mapping[int, int], bound: int) -> None:
    for rows, count in counts.items():
        if not 1 <= rows <= bound:
            raise _bad(f"--histogram {name}", f"size {rows}", f"1 to {bound}, the method's bound (nearest: "
                       f"{min(max(rows, 1), bound)})", "measure with the bounds that are compiled")
        if not 0 <= count < 2**62:
            raise _bad(f"--histogram {name}", f"count {count} of size {rows}", "at least 0 (nearest: 0)"
                       if count < 0 else "below 2**62", "correct the file")


def _check_method(option: str, name: str, seen: Mapping[str, object] | tuple[()]) -> None:
    if name not in _METHODS:
        raise _unknown(option, name, _METHODS)
    if name in seen:
        raise _bad(option, f"method {name} twice", "each method once", f"write {name} once")


def _check_number(option: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        near = min(max(value, least), most)
        raise _bad(option, str(value), f"{least} to {most}", f"pass {near}")


def _integer(option: str, text: str) -> int:
    if not text.strip().removeprefix("-").isdecimal() or not text.isascii():
        raise _bad(option, repr(text), "an integer", "correct the number")
    return int(text)


def _unknown(option: str, name: str, known: Sequence[str]) -> Dsv41cError:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0]
    return _bad(option, repr(name), f"one of {', '.join(known)}", f"did you mean {near}?")


def _bad(option: str, found: str, needed: str, do: str) -> Dsv41cError:
    return Dsv41cError("DSV41C-E0901", f"option {option}", found=found, needed=needed, do=do)
