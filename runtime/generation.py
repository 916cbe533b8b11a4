"""Generation: one request of an engine, its tokens as they come, and its answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from ctypes import c_void_p
from dataclasses import dataclass
from typing import Any

from dsv41c.runtime.c_api import Event, api, check, error_of
from dsv41c.runtime.plan.errors import Dsv41cError

_TOKENS = 0  # kind of an event; the others are terminal
_FINISH = ("", "stop", "length", "cancel", "error", "deadline")


@dataclass(frozen=True)
class Tokens:
    """Tokens `first_index`... of an answer. With log-probabilities: one for each token, and the likeliest ids' ones as
    `(id, log-probability)`, likeliest first."""

    first_index: int
    ids: tuple[int, ...]
    logprobs: tuple[float, ...] = ()
    top_logprobs: tuple[tuple[tuple[int, float], ...], ...] = ()


@dataclass(frozen=True)
class Answer:
    """`finish_reason` is "stop", "length", "cancel", "deadline" or "error"; `error` says more in the last three.

    Log-probabilities are those of the model (before temperature, top_k and top_p), where they were asked for.
    """

    prompt_ids: tuple[int, ...]
    tokens: tuple[int, ...]
    finish_reason: str
    logprobs: tuple[float, ...]
    top_logprobs: tuple[tuple[tuple[int, float], ...], ...]
    error: Dsv41cError | None
    preemptions: int
    queue_seconds: float
    prefill_seconds: float
    decode_seconds: float


class Generation:
    """A request that was accepted. `on_tokens` and `on_end` run on a thread of the engine."""

    def __init__(self, prompt_ids: tuple[int, ...], on_tokens: Callable[[Tokens], None] | None,
                 on_end: Callable[[Answer], None] | None, forget: Callable[[], object]) -> None:
        self._prompt_ids = prompt_ids
        self._on_tokens, self._on_end, self._forget = on_tokens, on_end, forget
        self._runs: list[Tokens] = []
        self._answer: Answer | None = None
        self._failure: Exception | None = None
        self._ended = threading.Event()
        self._handle: c_void_p | None = None

    def hold(self, handle: c_void_p) -> None:
        self._handle = handle

    def cancel(self) -> None:
        """As often as you like; the answer so far comes still."""
        if self._handle is not None:
            check(api().request_cancel(self._handle))

    def wait(self, timeout: float | None = None) -> Answer:
        """The answer; TimeoutError after so many seconds. Raises what a callback raised."""
        if not self._ended.wait(timeout):
            raise TimeoutError(f"no answer within {timeout} s")
        if self._failure is not None:
            raise self._failure
        assert self._answer is not None
        return self._answer

    def take(self, event: Event) -> int:
        """An event of the engine; 1 cancels the request, because a callback raised."""
        try:
            if event.kind == _TOKENS:
                self._take_tokens(_tokens(event))
            else:
                self._end(event)
        except Exception as error:  # nothing may be raised into the engine: the caller of wait gets it
            self._failure = self._failure or error
            if event.kind != _TOKENS:
                self._ended.set()
        return int(self._failure is not None)

    def _take_tokens(self, news: Tokens) -> None:
        self._runs.append(news)
        if self._on_tokens is not None and self._failure is None:
            self._on_tokens(news)

    def _end(self, event: Event) -> None:
        self._forget()
        runs = self._runs
        self._answer = Answer(
            self._prompt_ids, tuple(i for run in runs for i in run.ids), _FINISH[event.finish],
            tuple(p for run in runs for p in run.logprobs), tuple(t for run in runs for t in run.top_logprobs),
            error_of(event.error_json) if event.error_json else None, event.preemptions, event.queue_ns / 1e9,
            event.prefill_ns / 1e9, event.decode_ns / 1e9)
        if self._on_end is not None:
            self._on_end(self._answer)
        self._ended.set()

    def __del__(self) -> None:
        if self._handle is not None:
            api().request_free(self._handle)


def _tokens(event: Any) -> Tokens:
    count, width = event.n_tokens, event.n_top
    ids = tuple(event.tokens[:count])
    if not event.logprobs:
        return Tokens(event.first_index, ids)
    likeliest = list(zip(event.top_ids[: count * width], event.top_logprobs[: count * width], strict=True))
    return Tokens(event.first_index, ids, tuple(event.logprobs[:count]),
                  tuple(tuple(likeliest[i * width : (i + 1) * width]) for i in range(count)))
