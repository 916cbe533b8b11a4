"""Engine: continuous batching of generations over a runtime, in C++; this is the Python side of its C interface."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import byref, c_void_p
from typing import Any

from dsv41c.runtime.c_api import (
    EngineInfo,
    EngineOptions,
    EventFunction,
    Stats,
    api,
    check,
    engine_over,
    sized,
    take_text,
)
from dsv41c.runtime.generation import Answer, Generation, Tokens
from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.runtime.sampling_params import SamplingParams

CLOSE_TIMEOUT_MS = 10_000


class Engine:
    """Owns a runtime's executor until it is closed. Any thread may use it.

    A lower limit than the artifact's: `kv_pages`, `max_context` (tokens of a request), `max_batch` (requests that run
    at the same time), `max_batch_tokens` (rows of a step); `max_queue` bounds the requests that wait (1,024).
    """

    def __init__(self, executor: c_void_p, *, kv_pages: int = 0, max_context: int = 0, max_batch: int = 0,
                 max_batch_tokens: int = 0, max_queue: int = 0) -> None:
        options = sized(EngineOptions(kv_pages=kv_pages, max_context=max_context, max_batch=max_batch,
                                      max_batch_tokens=max_batch_tokens, max_queue=max_queue))
        self._live: dict[int, Generation] = {}
        self._numbers = itertools.count(1)
        self._paused = False
        self._lock = threading.Lock()
        callback = EventFunction(_deliverer(self._live))
        self._callback = callback
        self._open_handle: c_void_p | None = engine_over(executor, options)
        # At the end of the interpreter too, before threads of the engine would call into what is left of it.
        self._process = os.getpid()
        self._finalizer = weakref.finalize(self, _close, self._open_handle, self._process, callback)

    def submit(self, prompt_ids: Sequence[int], params: SamplingParams, name: str | None = None,
               on_tokens: Callable[[Tokens], None] | None = None,
               on_end: Callable[[Answer], None] | None = None) -> Generation:
        """Queue a generation. Callbacks run on a thread of the engine; E0901, E0902, E1001 or E1002 refuse it."""
        given = params.in_c(prompt_ids, name)
        number = next(self._numbers)
        generation = Generation(tuple(int(i) for i in prompt_ids), on_tokens, on_end, lambda: self._live.pop(number))
        handle = c_void_p()
        self._live[number] = generation
        try:
            check(api().generate(self._handle, byref(given), self._callback, number, byref(handle)))
        except Dsv41cError:
            del self._live[number]
            raise
        generation.hold(handle)
        return generation

    def generate(self, prompts: Sequence[Sequence[int]], params: SamplingParams | Sequence[SamplingParams],
                 on_tokens: Callable[[int, Tokens], None] | None = None) -> list[Answer]:
        """Answers in the order of the prompts, which start together. One that ended early says why in `error`.

        `on_tokens(index, tokens)` runs on a thread of the engine. A prompt that is refused raises, and none runs.
        """
        each = [params] * len(prompts) if isinstance(params, SamplingParams) else params
        generations: list[Generation] = []
        try:
            with self._together():
                for index, (prompt, one) in enumerate(zip(prompts, each, strict=True)):
                    told = None if on_tokens is None else lambda news, i=index: on_tokens(i, news)
                    generations.append(self.submit(prompt, one, f"{index}", told))
            return [generation.wait() for generation in generations]
        except BaseException:  # a refusal, or an interrupt: nobody waits for the others any more
            for generation in generations:
                generation.cancel()
            raise

    async def stream(self, prompt_ids: Sequence[int], params: SamplingParams,
                     name: str | None = None) -> AsyncIterator[Tokens]:
        """Tokens as they come; leaving the loop cancels. A request that fails, is late or is cancelled raises."""
        loop, news = asyncio.get_running_loop(), asyncio.Queue[Tokens | Answer]()

        def tell(item: Tokens | Answer) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(news.put_nowait, item)

        generation = self.submit(prompt_ids, params, name, tell, tell)
        try:
            while isinstance(item := await news.get(), Tokens):
                yield item
            if item.error is not None:
                raise item.error
        finally:
            generation.cancel()

    def info(self) -> dict[str, int]:
        """The limits in force."""
        return self._filled(api().engine_info, EngineInfo())

    def stats(self) -> dict[str, int]:
        return self._filled(api().engine_stats, Stats())

    def metrics(self) -> str:
        """In Prometheus' text format."""
        buffer = c_void_p()
        check(api().engine_metrics(self._handle, byref(buffer)))
        return take_text(buffer)

    def pause(self, paused: bool = True) -> None:
        """While paused no step starts; requests wait, cancels and deadlines work."""
        with self._lock:
            self._paused = paused
            check(api().engine_pause(self._handle, int(paused)))

    def check_ready(self) -> None:
        """Raises the error that ended the engine's service, if one did."""
        check(api().engine_ready(self._handle))

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_closed(self) -> bool:
        return self._open_handle is None

    def close(self) -> None:
        """Cancels what still runs; the runtime can be stepped again."""
        self._open_handle = None
        self._finalizer()

    @property
    def _handle(self) -> c_void_p:
        if self._open_handle is None:
            raise Dsv41cError("DSV41C-E1005", "engine", found="a closed engine", needed="an open one",
                              do="create another engine")
        if os.getpid() != self._process:
            raise Dsv41cError("DSV41C-E1005", "engine", found="an engine of the parent process",
                              needed="one of this process", do="load the artifact again after the fork")
        return self._open_handle

    @contextmanager
    def _together(self) -> Iterator[None]:
        """What is submitted inside enters the same step."""
        with self._lock:
            check(api().engine_pause(self._handle, 1))
            try:
                yield
            finally:
                check(api().engine_pause(self._handle, int(self._paused)))

    def _filled(self, function: Any, struct: Any) -> dict[str, int]:
        check(function(self._handle, byref(sized(struct))))
        return {name: getattr(struct, name) for name, _ in struct._fields_ if name != "struct_size"}


def _deliverer(live: dict[int, Generation]) -> Callable[[int, Any], int]:
    def deliver(user: int, event: Any) -> int:
        generation = live.get(user)
        return 1 if generation is None else generation.take(event.contents)

    return deliver


def _close(handle: c_void_p, process: int, _callback: object) -> None:
    if os.getpid() == process:  # threads do not survive a fork
        check(api().engine_close(handle, CLOSE_TIMEOUT_MS))
