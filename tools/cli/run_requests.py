"""What `dsv41c run` does: an artifact serves the requests of the command line."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from dsv41c.runtime.step_log import LoggedRun
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
        log = StepLog(runtime)
        speculation = None
        if modes.draft_len:
            speculation = model_speculation(log, artifact, modes.draft_len, modes.draft_schedule, modes.eager)
        start = time.perf_counter()
        try:
            completions = generate(log, limits, requests, eager=modes.eager, keep_logits=modes.keep_logits,
                                   speculation=speculation, on_token=on_token)
        finally:
            if modes.trace is not None:
                modes.trace.write(_fill_trace(log.runs, artifact))
        return Outcome(completions, log.runs, runtime.report(), time.perf_counter() - start, tokenizer,
                       None if speculation is None else speculation.counts)


def _fill_trace(runs: Sequence[LoggedRun], artifact: Path) -> Callable[[BinaryIO], object]:
    from dsv41c.runtime.step_log import chrome_trace

    text = json.dumps(chrome_trace(runs, f"dsv41c run {artifact}"))
    return lambda handle: handle.write(text.encode())
