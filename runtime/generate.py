"""generate: continuous batching of requests over the slots of one runtime, until all of them are finished."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from dsv41c.runtime.limits import Limits
from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.runtime.requests import Completion, Request, check_request
from dsv41c.runtime.sampling import draw_token, log_probability
from dsv41c.runtime.step_rows import ActiveRequest, Part, choose_parts, step_rows


class StepExecutor(Protocol):
    """What the loop needs of `dsv41c.runtime.load.Runtime`."""

    def step(self, upload: Any, keep_rows: Any, logit_rows: Any, eager: bool = False) -> None: ...

    def output(self, name: str) -> npt.NDArray[Any]: ...


def generate(executor: StepExecutor, limits: Limits, requests: Sequence[Request], *, eager: bool = False,
             keep_logits: bool = False, on_token: Callable[[int], None] = lambda index: None) -> list[Completion]:
    """Completions in the order of `requests`; `on_token(index)` is called for each token of a request.

    The executor's slots must be free: every request starts its slot anew. E0901 or E0902 before the first step.
    """
    for index, request in enumerate(requests):
        check_request(request, limits, f"request {index}")
    batch = _Batch(limits, requests)
    while (active := batch.admit()):
        parts = choose_parts(active, limits.max_num_batched_tokens, limits.full_decoder_rows)
        executor.step(*step_rows(parts, limits), eager)
        _take_results(executor, parts, keep_logits)
        chosen = [part.active for part in parts if part.gives_token]
        for part in parts:
            part.active.position += part.count
        batch.end_step(chosen)
        for one in chosen:
            on_token(one.index)
    return batch.completions()


def _take_results(executor: StepExecutor, parts: Sequence[Part], keep_logits: bool) -> None:
    """One more token for each request that gives one: the device's for greedy ones, a draw on the host for the others;
    and the log-probabilities of the prompt rows that want them."""
    counts = [part.num_logit_rows for part in parts]
    if not sum(counts):
        return
    greedy = executor.output("tokens")
    if greedy.dtype != np.int32 or greedy.shape != (sum(counts),):
        raise Dsv41cError("DSV41C-E0703", "output tokens", found=f"{greedy.dtype} {list(greedy.shape)}",
                          needed=f"int32 [{sum(counts)}]", do="compile the artifact again")
    logits = executor.output("logits") if any(_needs_logits(part, keep_logits) for part in parts) else None
    end = 0
    for part, count in zip(parts, counts, strict=True):
        begin, end = end, end + count
        if part.scores_prompt:
            assert logits is not None
            _score_prompt(part, logits[begin:end])
        if part.gives_token:
            _take_token(part, int(greedy[end - 1]), None if logits is None else logits[end - 1], keep_logits)


def _needs_logits(part: Part, keep_logits: bool) -> bool:
    return part.scores_prompt or part.gives_token and (keep_logits or not part.active.request.is_greedy)


def _score_prompt(part: Part, logits: npt.NDArray[np.float32]) -> None:
    """The last row of a prompt scores the first new token, which is none of the prompt's."""
    one = part.active
    following = one.request.prompt_ids[one.position + 1 : one.position + 1 + part.count]
    one.prompt_logprobs += [log_probability(row, int(token)) for row, token in zip(logits, following, strict=False)]


def _take_token(part: Part, greedy: int, logits: npt.NDArray[np.float32] | None, keep_logits: bool) -> None:
    one, request = part.active, part.active.request
    if logits is not None and keep_logits:
        one.logits.append(np.array(logits, dtype=np.float32))
    if logits is None or request.is_greedy:
        one.tokens.append(greedy)
    else:
        position = one.position + part.count
        one.tokens.append(draw_token(logits, request.temperature, request.top_p, request.seed, position))


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

    def end_step(self, chosen: Sequence[ActiveRequest]) -> None:
        self._step += 1
        for one in chosen:
            reason = self._finish_reason(one)
            if reason is not None:
                logits = np.stack(one.logits) if one.logits else None
                scores = tuple(one.prompt_logprobs) if one.request.prompt_logprobs else None
                self._done[one.index] = Completion(tuple(int(i) for i in one.request.prompt_ids), tuple(one.tokens),
                                                   reason, logits, scores)
                self._active.remove(one)
                heapq.heappush(self._free, one.slot)

    def _finish_reason(self, one: ActiveRequest) -> Literal["stop", "length"] | None:
        request = one.request
        if one.tokens[-1] in self._limits.eos_ids and not request.ignore_eos:
            return "stop"
        full = len(request.prompt_ids) + len(one.tokens) >= self._limits.max_model_len
        return "length" if full or len(one.tokens) >= request.max_new_tokens else None

    def completions(self) -> list[Completion]:
        return [self._done[index] for index in sorted(self._done)]
