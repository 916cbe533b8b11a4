"""What `dsv41c run` prints: texts and a summary, or one JSON object."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dsv41c.runtime.load import DecisionRecord
    from dsv41c.runtime.requests import Completion
    from dsv41c.runtime.speculation import Acceptance
    from dsv41c.runtime.tokenizer import Tokenizer


@dataclass(frozen=True)
class Outcome:
    completions: list[Completion]
    records: list[DecisionRecord]
    report: dict[str, Any]
    seconds: float
    tokenizer: Tokenizer | None
    acceptance: Acceptance | None

    def text(self, completion: Completion) -> str | None:
        return self.tokenizer.decode(completion.tokens) if self.tokenizer else None


def result(outcome: Outcome) -> dict[str, Any]:
    from dsv41c.runtime.step_log import counters

    requests = [{"prompt_ids": list(c.prompt_ids), "tokens": list(c.tokens), "text": outcome.text(c),
                 "finish_reason": c.finish_reason}
                | ({} if c.prompt_logprobs is None else {"prompt_logprobs": [None, *c.prompt_logprobs]})
                for c in outcome.completions]
    steps = [r.to_json() | {"us": r.us} for r in outcome.records]
    load = {name: outcome.report[name] for name in ("planned_bytes", "reserved_bytes", "seconds")}
    return {"schema_version": 1, "requests": requests, "steps": steps, "counters": counters(outcome.records),
            "load": load, "speculation": None if outcome.acceptance is None else outcome.acceptance.to_json()}


def print_texts(outcome: Outcome) -> None:
    for completion in outcome.completions:
        text = outcome.text(completion)
        print(",".join(str(t) for t in completion.tokens) if text is None else text)
    tokens = sum(len(c.tokens) for c in outcome.completions)
    print(f"{len(outcome.completions)} requests, {tokens} tokens in {outcome.seconds:.3f} s, "
          f"load {outcome.report['seconds']:.3f} s\nsteps {summarise_steps(outcome.records)}\n"
          f"runs  {summarise_runs(outcome.records)}", file=sys.stderr)
    if (drafts := outcome.acceptance) is not None:
        print(f"drafts {drafts.accepted} of {drafts.proposed} accepted in {drafts.steps} verifications, "
              f"{drafts.mean_accepted:.2f} on average", file=sys.stderr)


def summarise_steps(records: Sequence[DecisionRecord]) -> str:
    """`decode@1 x14 82 us` for each method, bucket and mode: how often, and the mean time."""
    spent: dict[str, list[float]] = {}
    for record in records:
        name = f"{record.method}@{record.bucket}{' eager' if record.eager else ''}"
        spent.setdefault(name, []).append(record.us)
    return ", ".join(f"{name} x{len(us)} {sum(us) / len(us):.0f} us" for name, us in spent.items())


def summarise_runs(records: Sequence[DecisionRecord]) -> str:
    """`decode bucketed (bucket) 14 runs, 28 rows, 3 pads` for each method, mode and reason."""
    from dsv41c.runtime.step_log import counters

    return "; ".join(f"{c['method']} {c['mode']} ({c['reason']}) {c['runs']} runs, {c['rows']} rows, "
                     f"{c['pad_rows']} pads" for c in counters(records))
