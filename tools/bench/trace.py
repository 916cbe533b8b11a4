"""A trace of requests as a service sees them: lengths and arrival times, the same for the same seed."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dsv41c.runtime.plan.errors import Dsv41cError

PROMPT_MEDIAN, PROMPT_SIGMA, PROMPT_MOST = 1_800, 1.2, 32_768  # tokens, lognormal, capped
OUTPUT_MEDIAN, OUTPUT_SIGMA = 250, 0.8                         # tokens, lognormal, not capped
SEED, RATE = 1, 4.0  # RATE: requests a second; the cost model serves about 10 at default options
REQUESTS, RUN_REQUESTS = 1_000, 50  # of a simulation, and of a run


@dataclass(frozen=True)
class TraceRequest:
    """Lengths in tokens; arrival in nanoseconds since the start."""

    prompt: int
    output: int
    arrival_ns: int


def draw_trace(seed: int = SEED, requests: int = REQUESTS, rate: float = RATE, max_prompt: int = PROMPT_MOST,
               max_output: int | None = None) -> tuple[TraceRequest, ...]:
    """Requests in order of arrival: lognormal lengths, exponential gaps (Poisson arrivals) of mean 1 / `rate` seconds.
    Each column has a stream of its own: more requests leave the first ones as they are. Longer lengths are cut to
    `max_prompt` and `max_output`, so that the median stays and the tail goes."""
    prompts, outputs, gaps = (np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(3))
    prompt = np.minimum(_lognormal(prompts, PROMPT_MEDIAN, PROMPT_SIGMA, requests), max_prompt)
    output = _lognormal(outputs, OUTPUT_MEDIAN, OUTPUT_SIGMA, requests)
    if max_output is not None:
        output = np.minimum(output, max_output)
    arrival = np.cumsum(gaps.exponential(1e9 / rate, requests)).astype(np.int64)
    return tuple(TraceRequest(int(p), int(o), int(a)) for p, o, a in zip(prompt, output, arrival, strict=True))


def check_trace_options(rate: float, max_num_seqs: int, max_num_batched_tokens: int) -> None:
    """E0901 where no trace or no step could be made."""
    if not (math.isfinite(rate) and rate >= 1e-6):
        raise Dsv41cError("DSV41C-E0901", "option --rate", found=str(rate), needed="a number of at least 1e-6",
                          do="pass the requests of a second")
    if max_num_seqs > max_num_batched_tokens:
        raise Dsv41cError("DSV41C-E0901", "option --max-num-batched-tokens", found=str(max_num_batched_tokens),
                          needed=f"at least {max_num_seqs} (--max-num-seqs)", do=f"pass {max_num_seqs} or more")


def _lognormal(draws: np.random.Generator, median: float, sigma: float, count: int) -> np.ndarray:
    return np.maximum(np.rint(draws.lognormal(math.log(median), sigma, count)), 1).astype(np.int64)
