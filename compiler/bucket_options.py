"""Options about buckets: how they are written, and every check of them (E0901 with the nearest legal value)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from dsv41c.compiler.bounds import RowOptions, method_bounds
from dsv41c.compiler.measured_sizes import check_sizes, histogram_of
from dsv41c.compiler.option_checks import bad, check_method, check_number, integer, unknown
from dsv41c.runtime.plan.format import BUCKET_POLICIES

DEFAULT_MAX_GRAPHS = 48
MOST_GRAPHS = 4096
DEFAULT_STEP = 128
STEP_POLICIES = ("powers", "step")
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
        raise unknown("--bucket-policy", policy, BUCKET_POLICIES)
    for option, value, policies in (("--buckets", options.buckets, ("explicit",)),
                                    ("--bucket-step", options.bucket_step, STEP_POLICIES),
                                    ("--histogram", options.histogram, ("histogram",))):
        if value not in ((), None) and policy not in policies:
            raise bad(option, f"with --bucket-policy {policy}", f"--bucket-policy {' or '.join(policies)}",
                       f"add --bucket-policy {policies[0]}")
    if policy == "explicit" and not options.buckets:
        raise bad("--bucket-policy", "explicit without --buckets", "--buckets METHOD=1,2,3,...", "add --buckets")
    if policy == "histogram" and not options.histogram:
        raise bad("--bucket-policy", "histogram without --histogram", "--histogram FILE", "add --histogram")
    bounds = method_bounds(options)
    if options.bucket_step is not None:
        check_number("--bucket-step", options.bucket_step, 1, options.max_num_batched_tokens)
    least = sum(min(rows, _SMALL + 1) for rows in bounds.values())
    check_number("--max-graphs", options.max_graphs, least, MOST_GRAPHS)
    for name, rungs in explicit_buckets(options).items():
        _check_rungs(name, rungs, _bound("--buckets", name, bounds))
    for name, counts in histogram_of(options.histogram).items():
        check_sizes(name, counts, _bound("--histogram", name, bounds))


def explicit_buckets(options: BucketOptions) -> dict[str, tuple[int, ...]]:
    """`--buckets METHOD=1,2,3` by method."""
    found: dict[str, tuple[int, ...]] = {}
    for text in options.buckets:
        name, equals, numbers = text.partition("=")
        if not equals:
            raise bad("--buckets", repr(text), "METHOD=1,2,3,...", "write decode=1,2,3")
        check_method("--buckets", name, found)
        found[name] = tuple(integer("--buckets", part) for part in numbers.split(","))
    return found


def _bound(option: str, name: str, bounds: Mapping[str, int]) -> int:
    if name not in bounds:
        raise bad(option, f"method {name} without --draft-len", f"one of {', '.join(bounds)}", "add --draft-len")
    return bounds[name]


def _check_rungs(name: str, rungs: Sequence[int], bound: int) -> None:
    option = f"--buckets {name}"
    legal = sorted({min(max(r, 1), bound) for r in rungs})
    write = f"write {name}={','.join(map(str, legal))}"
    for before, rung in zip((0, *rungs), rungs, strict=False):
        if not 1 <= rung <= bound:
            raise bad(option, f"bucket {rung}", f"1 to {bound}, the method's bound (nearest: "
                       f"{min(max(rung, 1), bound)})", write)
        if rung == before:
            raise bad(option, f"bucket {rung} twice", "each bucket once", write)
        if rung < before:
            raise bad(option, f"{rung} after {before}", "ascending buckets", write)
