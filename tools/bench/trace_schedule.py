"""Runs a trace through the generation loop's scheduling rule, without a model: the rows of each step by method."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dsv41c.runtime.limits import Limits
from dsv41c.runtime.plan.costs import DEFAULT_COSTS, Costs
from dsv41c.runtime.requests import Request
from dsv41c.runtime.step_rows import ActiveRequest, Part, choose_parts, num_left_out
from dsv41c.tools.bench.trace import TraceRequest


@dataclass(frozen=True)
class Schedule:
    """`keep`: last rows of a prompt that the decoder runs on, None: all."""

    max_num_seqs: int
    max_num_batched_tokens: int
    keep: int | None

    @property
    def limits(self) -> Limits:
        """Only what tells the rows of a step: a trace has no pages and no tokens."""
        return Limits(max_model_len=1, max_num_seqs=self.max_num_seqs,
                      max_num_batched_tokens=self.max_num_batched_tokens, block_size=1, vocab_size=1,
                      eos_ids=frozenset(), suffix_keep_tokens=self.keep or 0, runs_all_rows=self.keep is None)


@dataclass(frozen=True)
class StepSizes:
    """Rows by method (those that run) and the nanoseconds that the cost model gives the step at its exact sizes."""

    rows: dict[str, int]
    duration_ns: int


def simulate(trace: Sequence[TraceRequest], schedule: Schedule, costs: Costs = DEFAULT_COSTS) -> Iterator[StepSizes]:
    """Every step until the last request is done. Requests take the slots in order of arrival; durations depend on the
    sizes alone and not on ladders, so that a change of a ladder leaves the steps as they are."""
    waiting, free = deque(enumerate(trace)), list(range(schedule.max_num_seqs))
    active: list[ActiveRequest] = []
    now = 0
    while waiting or active:
        if not active:
            now = max(now, waiting[0][1].arrival_ns)
        while waiting and free and waiting[0][1].arrival_ns <= now:
            index, one = waiting.popleft()
            active.append(ActiveRequest(Request(range(one.prompt), one.output), index, heapq.heappop(free)))
        parts = choose_parts(active, schedule.max_num_batched_tokens)
        sizes = step_sizes(parts, schedule, costs)
        yield sizes
        now += sizes.duration_ns
        for part in parts:
            _advance(part, active, free)


def step_sizes(parts: Sequence[Part], schedule: Schedule, costs: Costs) -> StepSizes:
    """The flow `decode` where every row is one request's newest and all fit it, else `prefill`, of which the decoder
    does not run where it keeps no row."""
    total, tokens = sum(part.count for part in parts), sum(part.num_logit_rows for part in parts)
    if total == tokens and total <= schedule.max_num_seqs:
        return StepSizes({"decode": total}, costs.replay_ns + costs.row_ns * total)
    limits = schedule.limits
    kept = total - sum(num_left_out(part, limits) for part in parts)
    rows = {name: n for name, n in (("encoder", total), ("decoder", kept), ("head", tokens)) if n}
    # Encoder and decoder have half of the layers each; the head's share is small.
    return StepSizes(rows, (costs.replay_ns * (1 + (kept > 0)) + costs.row_ns * (total + kept)) // 2)


def _advance(part: Part, active: list[ActiveRequest], free: list[int]) -> None:
    one, gives_token = part.active, part.num_logit_rows > 0
    one.position += part.count
    if not gives_token:
        return
    one.tokens.append(0)
    if len(one.tokens) == one.request.max_new_tokens:
        active.remove(one)
        heapq.heappush(free, one.slot)
