"""generate: continuous batching of requests over the slots of one runtime, until all of them are finished."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dsv41c.runtime.block_tokens import take_tokens
from dsv41c.runtime.limits import Limits
from dsv41c.runtime.requests import Completion, Request, check_request
from dsv41c.runtime.speculation import Speculation
from dsv41c.runtime.step_rows import ActiveRequest, choose_parts, step_rows


class StepExecutor(Protocol):
    """What the loop needs of `dsv41c.runtime.load.Runtime`."""

    def step(self, upload: Any, keep_rows: Any, logit_rows: Any, eager: bool = False) -> None: ...

    def output(self, name: str) -> npt.NDArray[Any]: ...


def generate(executor: StepExecutor, limits: Limits, requests: Sequence[Request], *, eager: bool = False,
             keep_logits: bool = False, speculation: Speculation | None = None,
             on_token: Callable[[int], None] = lambda index: None) -> list[Completion]:
    """Completions in the order of `requests`; `on_token(index)` is called for each token of a request. Drafts change
    the number of steps, and no token.

    The executor's slots must be free: every request starts its slot anew. E0901 or E0902 before the first step.
    """
    for index, request in enumerate(requests):
        check_request(request, limits, f"request {index}")
    batch = _Batch(limits, requests)
    while (active := batch.admit()):
        parts = choose_parts(active, limits.max_num_batched_tokens)
        executor.step(*step_rows(parts, limits), eager)
        blocks = take_tokens(executor, parts, limits, keep_logits)
        going = batch.end_step([block.active for block in blocks])
        if speculation is not None:
            speculation.settle(blocks)
            speculation.prepare(going, limits)
        for block in blocks:
            for _ in range(block.kept):
                on_token(block.active.index)
    return batch.completions()


class _Batch:
    """Which requests hold slots, which wait, and which are done. A step counts once it has run."""

    def __init__(self, limits: Limits, requests: Sequence[Request]) -> None:
        self._limits = limits
        order = sorted(range(len(requests)), key=lambda i: (requests[i].arrival_step, i))
        self._waiting = deque((i, requests[i]) for i in order)
        self._active: list[ActiveRequest] = []
        self._free = list(range(limits.max_num_seqs))
        self._done: dict[int, Completion] = {}
        self._step = 0

    def admit(self) -> list[ActiveRequest]:
        """All requests that hold a slot, in order of arrival. Nobody to serve: time jumps to the next arrival."""
        if self._waiting and not self._active:
            self._step = max(self._step, self._waiting[0][1].arrival_step)
        while self._waiting and self._free and self._waiting[0][1].arrival_step <= self._step:
            index, request = self._waiting.popleft()
            self._active.append(ActiveRequest(request, index, heapq.heappop(self._free)))
        return self._active

    def end_step(self, chosen: Sequence[ActiveRequest]) -> list[ActiveRequest]:
        """Those of `chosen`, which have new tokens, that go on."""
        self._step += 1
        going = []
        for one in chosen:
            reason = one.finish_reason(self._limits)
            if reason is None:
                going.append(one)
                continue
            logits = np.stack(one.logits) if one.logits else None
            self._done[one.index] = Completion(tuple(int(i) for i in one.request.prompt_ids), tuple(one.tokens),
                                               reason, logits)
            self._active.remove(one)
            heapq.heappush(self._free, one.slot)
        return going

    def completions(self) -> list[Completion]:
        return [self._done[index] for index in sorted(self._done)]
