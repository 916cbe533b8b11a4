"""The requests of `dsv41c run`: by the engine, or by the loop in Python for what only that can do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dsv41c.runtime.limits import Limits
    from dsv41c.runtime.load import DecisionRecord, Runtime
    from dsv41c.runtime.requests import Completion, Request


def run_by_engine(runtime: Runtime, requests: Sequence[Request],
                  on_token: Callable[[int], None]) -> tuple[list[Completion], list[DecisionRecord]]:
    """Completions, and the decision records of the steps: the newest 65,536. The error of a request that failed is
    raised."""
    from dsv41c.runtime.requests import Completion
    from dsv41c.runtime.sampling_params import SamplingParams

    params = [SamplingParams(max_new_tokens=r.max_new_tokens, temperature=r.temperature, top_p=r.top_p, seed=r.seed,
                             ignore_eos=r.ignore_eos) for r in requests]
    since = runtime.num_records()
    with runtime.engine(max_queue=max(len(requests), 1)) as engine:
        answers = engine.generate([r.prompt_ids for r in requests], params,
                                  lambda index, news: [on_token(index) for _ in news.ids])
    completions = []
    for answer in answers:
        if answer.error is not None:
            raise answer.error
        completions.append(Completion(answer.prompt_ids, answer.tokens, answer.finish_reason, None))  # type: ignore[arg-type]
    return completions, runtime.records(since)


def run_by_loop(runtime: Runtime, limits: Limits, requests: Sequence[Request], on_token: Callable[[int], None], *,
                eager: bool, keep_logits: bool) -> tuple[list[Completion], list[DecisionRecord]]:
    """Steps that use no bucket, and logits of every token: the engine has neither."""
    from dsv41c.runtime.generate import generate

    recorded = _Recorded(runtime)
    completions = generate(recorded, limits, requests, eager=eager, keep_logits=keep_logits, on_token=on_token)
    return completions, recorded.records


class _Recorded:
    """The runtime, with the decision records of every step kept: the runtime itself keeps the newest only."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.output = runtime.output
        self.records: list[DecisionRecord] = []

    def step(self, upload: Any, keep_rows: Any, logit_rows: Any, eager: bool = False) -> None:
        since = self._runtime.num_records()
        self._runtime.step(upload, keep_rows, logit_rows, eager)
        self.records += self._runtime.records(since)
