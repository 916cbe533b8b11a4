"""The requests of `dsv41c run` on the engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dsv41c.runtime.requests import Completion, Request
    from dsv41c.runtime.step_log import StepLog


def run_by_engine(log: StepLog, requests: Sequence[Request], on_token: Callable[[int], None]) -> list[Completion]:
    """Of the decision records the newest 65,536 are kept. The error of a request that failed is raised."""
    from dsv41c.runtime.requests import Completion
    from dsv41c.runtime.sampling_params import SamplingParams

    params = [SamplingParams(max_new_tokens=r.max_new_tokens, temperature=r.temperature, top_p=r.top_p, seed=r.seed,
                             ignore_eos=r.ignore_eos) for r in requests]
    since = log.runtime.num_records()
    try:
        with log.runtime.engine(max_queue=max(len(requests), 1)) as engine:
            answers = engine.generate([r.prompt_ids for r in requests], params,
                                      lambda index, news: [on_token(index) for _ in news.ids])
    finally:
        log.records += log.runtime.records(since)
    for answer in answers:
        if answer.error is not None:
            raise answer.error
    return [Completion(answer.prompt_ids, answer.tokens, answer.finish_reason, None)  # type: ignore[arg-type]
            for answer in answers]
