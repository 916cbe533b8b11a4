"""What `dsv41c run` does: an artifact serves the requests of the command line, by the engine, or by the loop in Python
for what only that can do."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from dsv41c.runtime.load import DecisionRecord
    from dsv41c.runtime.requests import Request
    from dsv41c.tools.cli.output_file import OutputFile
    from dsv41c.tools.cli.prompts import PromptOptions
    from dsv41c.tools.cli.run_result import Outcome


@dataclass(frozen=True)
class Modes:
    verify: str
    weights: Path | None
    eager: bool
    keep_logits: bool
    memory_budget: int | None
    trace: OutputFile | None
    draft_len: int
    draft_schedule: str

    def fits_engine(self, requests: Sequence[Request]) -> bool:
        """The engine has no steps without buckets, no logits of every token, no drafts and no scores of prompts."""
        return not (self.eager or self.keep_logits or self.draft_len
                    or any(r.arrival_step or r.prompt_logprobs for r in requests))


def run_requests(artifact: Path, options: PromptOptions, modes: Modes) -> Outcome:
    """Prompts are checked before the artifact is loaded, so that a typing error costs nothing."""
    from dsv41c.runtime.generate import generate
    from dsv41c.runtime.limits import Limits
    from dsv41c.runtime.load import load
    from dsv41c.runtime.requests import check_request
    from dsv41c.runtime.speculation import check_drafts, model_speculation
    from dsv41c.runtime.step_log import StepLog
    from dsv41c.runtime.tokenizer import Tokenizer, require
    from dsv41c.tools.cli.progress import counter
    from dsv41c.tools.cli.run_by_engine import run_by_engine
    from dsv41c.tools.cli.run_result import Outcome

    limits = Limits.read(artifact)
    check_drafts(modes.draft_len, modes.draft_schedule, limits)
    tokenizer = Tokenizer.read(artifact, limits.eos_ids)
    placed = options.requests(lambda text: require(tokenizer, artifact).encode(text))
    for place, request in placed.items():
        check_request(request, limits, place)
    requests = list(placed.values())
    most = sum(r.max_new_tokens for r in requests)
    runtime = load(artifact, modes.verify, weights=modes.weights,
                   memory_budget=modes.memory_budget)  # type: ignore[arg-type]
    with runtime, counter("tokens", most) as on_token:
        log, speculation = StepLog(runtime), None
        if modes.draft_len:
            speculation = model_speculation(log, artifact, modes.draft_len, modes.draft_schedule, modes.eager)
        start = time.perf_counter()
        try:
            if modes.fits_engine(requests):
                completions = run_by_engine(log, requests, on_token)
            else:
                completions = generate(log, limits, requests, eager=modes.eager, keep_logits=modes.keep_logits,
                                       speculation=speculation, on_token=on_token)
        finally:
            if modes.trace is not None:
                modes.trace.write(_fill_trace(log.records, artifact))
        return Outcome(completions, log.records, runtime.report(), time.perf_counter() - start, tokenizer,
                       None if speculation is None else speculation.counts)


def _fill_trace(records: Sequence[DecisionRecord], artifact: Path) -> Callable[[BinaryIO], object]:
    from dsv41c.runtime.step_log import chrome_trace

    text = json.dumps(chrome_trace(records, f"dsv41c run {artifact}"))
    return lambda handle: handle.write(text.encode())
