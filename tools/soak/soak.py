"""Random traffic on one engine of a tiny model: arrivals, cancels, deadlines, slow consumers, too few pages, requests
that can never fit. Memory must stay within 2 %, every request must end once, and nobody may wait without bound."""

from __future__ import annotations

import argparse
import random
import resource
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from dsv41c.compiler.checkpoint.make import make_checkpoint
from dsv41c.compiler.driver import compile_checkpoint
from dsv41c.compiler.options import CompileOptions
from dsv41c.runtime.engine import Engine
from dsv41c.runtime.generation import Answer, Tokens
from dsv41c.runtime.load import load
from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.runtime.sampling_params import SamplingParams

OPTIONS = CompileOptions(max_model_len=256, block_size=16, max_num_seqs=16, max_num_batched_tokens=64)
# More requests live than slots and queue hold, so that some are refused.
PAGES, BATCH, QUEUE, LIVE = 15, 12, 24, 40
LONGEST_WAIT, MEMORY_DRIFT, WARM_SHARE = 30.0, 0.02, 0.25


@dataclass
class Totals:
    """What happened; `failures` are what must not."""

    ends: Counter[str] = field(default_factory=Counter)
    live: int = 0
    longest: float = 0.0
    failures: list[str] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)


class Request:
    """One request, and what was told of it."""

    def __init__(self, totals: Totals, draw: random.Random, longest_prompt: int) -> None:
        self.totals, self.start, self.told, self.ended = totals, time.monotonic(), 0, 0
        self.prompt = [draw.randrange(96) for _ in range(1 + draw.randrange(longest_prompt))]
        self.params = SamplingParams(
            max_new_tokens=1 + draw.randrange(40), temperature=draw.choice([0.0, 1.0]), seed=draw.randrange(1000),
            top_k=draw.choice([0, 5]), n_logprobs=draw.choice([0, 0, 2]), priority=int(draw.random() > 0.05),
            ignore_eos=True, deadline_ms=draw.choice([0, 0, 0, 0, 5, 50]))
        self.slow = 0.02 if draw.random() < 0.1 else 0.0
        self.cancels = draw.random() < 0.2

    def tokens(self, news: Tokens) -> None:
        if news.first_index != self.told:
            self.totals.failures.append(f"token {news.first_index} told as {self.told}")
        self.told += len(news.ids)
        if self.slow:
            time.sleep(self.slow)

    def end(self, answer: Answer) -> None:
        totals, self.ended = self.totals, self.ended + 1
        with totals.changed:
            totals.live -= 1
            totals.ends[answer.finish_reason] += 1
            totals.longest = max(totals.longest, time.monotonic() - self.start)
            if self.ended != 1 or self.told != len(answer.tokens) or answer.finish_reason == "error":
                totals.failures.append(f"ended {self.ended} times, {self.told} of {len(answer.tokens)} tokens, "
                                       f"{answer.finish_reason}: {answer.error}")
            totals.changed.notify()


def drive(engine: Engine, seconds: float, totals: Totals) -> list[int]:
    """Resident bytes, a sample each half second."""
    draw, end, samples, next_sample = random.Random(1), time.monotonic() + seconds, [], 0.0
    while time.monotonic() < end:
        with totals.changed:
            totals.changed.wait_for(lambda: totals.live < LIVE, timeout=1)
            totals.live += 1
        _submit(engine, Request(totals, draw, 70), totals)
        if draw.random() < 0.01:
            _expect_refusal(engine, totals)
        if draw.random() < 0.3:
            time.sleep(draw.expovariate(200))
        if time.monotonic() >= next_sample:
            samples.append(_resident_bytes())
            next_sample = time.monotonic() + 0.5
    return samples


def _submit(engine: Engine, request: Request, totals: Totals) -> None:
    try:
        generation = engine.submit(request.prompt, request.params, None, request.tokens, request.end)
    except Dsv41cError as error:
        with totals.changed:
            totals.live -= 1
            totals.ends[error.code] += 1
        if error.code != "DSV41C-E1002":
            totals.failures.append(f"refused: {error}")
        time.sleep(0.02)  # as a client would before it tries again
        return
    if request.cancels:
        generation.cancel()


def _expect_refusal(engine: Engine, totals: Totals) -> None:
    """More than all pages: at once, with the numbers, whatever the others do."""
    start = time.monotonic()
    try:
        engine.submit([1] * 230, SamplingParams(max_new_tokens=200))
        totals.failures.append("a request that can never run was accepted")
    except Dsv41cError as error:
        waited = time.monotonic() - start
        if error.code != "DSV41C-E1001" or waited > 1:
            totals.failures.append(f"refused after {waited:.2f} s: {error}")


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--directory", type=Path, default=Path("build/soak"))
    given = parser.parse_args()
    checkpoint, artifact = given.directory / "ckpt", given.directory / "art"
    if not artifact.is_dir():
        make_checkpoint("tiny", checkpoint, seed=0)
        compile_checkpoint(checkpoint, artifact, OPTIONS, lambda _: None)
    totals = Totals()
    with load(artifact) as runtime, runtime.engine(kv_pages=PAGES, max_batch=BATCH, max_queue=QUEUE) as engine:
        samples = drive(engine, given.seconds, totals)
        with totals.changed:
            if not totals.changed.wait_for(lambda: totals.live == 0, timeout=LONGEST_WAIT):
                totals.failures.append(f"{totals.live} requests never ended")
        stats = engine.stats()
    return report(totals, samples, stats)


def report(totals: Totals, samples: list[int], stats: dict[str, int]) -> int:
    warm = samples[int(len(samples) * WARM_SHARE):]
    first, last = (sum(part) / len(part) for part in (warm[: len(warm) // 4], warm[-(len(warm) // 4):]))
    drift = last / first - 1
    print(f"{sum(totals.ends.values())} requests: {dict(totals.ends)}; {stats['steps']} steps, "
          f"{stats['step_requests'] / stats['steps']:.1f} requests a step, {stats['preemptions']} preemptions; "
          f"longest request {totals.longest:.2f} s; memory {first / 2**20:.1f} MiB {drift:+.2%}")
    if abs(drift) > MEMORY_DRIFT:
        totals.failures.append(f"memory moved by {drift:+.2%}, at most {MEMORY_DRIFT:.0%} is allowed")
    if totals.longest > LONGEST_WAIT:
        totals.failures.append(f"a request took {totals.longest:.1f} s")
    if stats["kv_pages_used"] or stats["slots_used"]:
        totals.failures.append(f"pages and slots that are still held: {stats}")
    for failure in totals.failures[:20]:
        print(f"FAILED {failure}", file=sys.stderr)
    return 1 if totals.failures else 0


if __name__ == "__main__":
    sys.exit(main())
