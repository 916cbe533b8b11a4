"""Tokens and log-probabilities from float32 logits: the reference of what the engine does in C++, and what the loop in
Python uses. A function of the logits, the settings, the seed and the position."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]
Logits = npt.NDArray[np.float32]


def draw_token(logits: Logits, temperature: float, top_p: float, seed: int, position: int, top_k: int = 0) -> int:
    """Softmax at `temperature` over the `top_k` likeliest ids (0: all), and of these over the smallest set that holds
    `top_p`; lower ids win ties.

    The random number depends on (seed, position) alone, so batch-mates never change what a request draws.
    """
    weights = _weights(logits, temperature)
    if weights is None:
        return 0
    ids = np.arange(len(weights))
    if top_p < 1 or 0 < top_k < len(weights):
        ids = np.argsort(-weights, kind="stable")[: top_k or None]
    running = np.cumsum(weights[ids])
    if top_p < 1:
        running = running[: int(np.searchsorted(running, top_p * running[-1])) + 1]
    key = np.array([seed, position], dtype=np.uint64)
    uniform = np.random.Generator(np.random.Philox(key=key)).random()
    drawn = int(np.searchsorted(running, uniform * running[-1], side="right"))
    # The product may round up to the total; the last id of non-zero weight is where the total is reached.
    return int(ids[min(drawn, int(np.searchsorted(running, running[-1])))])


def log_probabilities(logits: Logits) -> Logits:
    """Natural logarithms of the softmax of finite logits, computed in float64."""
    shifted = logits.astype(np.float64) - np.float64(logits.max())
    result: Logits = (shifted - np.log(np.cumsum(np.exp(shifted))[-1])).astype(np.float32)
    return result


def _weights(logits: Logits, temperature: float) -> Float64 | None:
    """Unnormalised probabilities; None when no logit is a number above -inf. NaN never wins, as in greedy choice."""
    largest = np.finfo(np.float64).max
    scores = np.nan_to_num(logits.astype(np.float64), nan=-np.inf, neginf=-np.inf, posinf=largest)
    best = scores.max()
    if best == -np.inf:
        return None
    with np.errstate(over="ignore"):  # a tiny temperature: everything but the best becomes -inf, which is meant
        result: Float64 = np.exp((scores - best) / temperature)
    return result
