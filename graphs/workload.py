"""Workloads: how often a method runs how many rows, and the expected nanoseconds of all of it on a ladder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dsv41c.runtime.plan.costs import Costs, step_ns

# Rows of one step -> how often, by method. A prompt is one step of encoder and decoder: where it has more rows than the
# bound it is split. Nine decode steps for each prompt, mostly of few requests; prompts of a chat, some of them long.
Histogram = Mapping[str, Mapping[int, int]]
_PROMPTS = {16: 5, 64: 15, 128: 15, 256: 20, 512: 20, 1024: 10, 2048: 8, 4096: 5, 8192: 2}
_DECODES = {1: 300, 2: 120, 4: 120, 8: 120, 16: 120, 32: 80, 64: 40}
DEFAULT_HISTOGRAM: Histogram = {
    "decode": _DECODES,
    "encoder": _PROMPTS, "decoder": _PROMPTS, "head": {1: 80, 2: 10, 4: 10}, "draft": _DECODES,
}


def default_histogram(keep: int | None) -> Histogram:
    """`keep`: rows of a prompt that the decoder runs on, None: all."""
    if keep is None:
        return DEFAULT_HISTOGRAM
    kept: dict[int, int] = {}
    for rows, count in _PROMPTS.items():
        kept[min(rows, keep)] = kept.get(min(rows, keep), 0) + count
    return {**DEFAULT_HISTOGRAM, "decoder": kept}


def workload_ns(sizes: Mapping[int, int], bound: int, rungs: Sequence[int], costs: Costs, above: str) -> int:
    """All steps of one method: what has more rows than the bound runs as full steps and one for the rest."""
    total = 0
    for rows, count in sizes.items():
        full, rest = divmod(rows, bound)
        steps = [(full, bound)] * (full > 0) + [(1, rest)] * (rest > 0)
        total += count * sum(times * step_ns(rungs, above, step, costs) for times, step in steps)
    return total
