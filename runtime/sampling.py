"""draw_token: one token from float32 logits, a function of the logits, the settings, the seed and the position; and the
log-probability of a token."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def draw_token(logits: npt.NDArray[np.float32], temperature: float, top_p: float, seed: int, position: int) -> int:
    """Softmax at `temperature` over the smallest set of likeliest ids that holds `top_p`; lower ids win ties.

    The random number depends on (seed, position) alone, so batch-mates never change what a request draws.
    """
    weights = _weights(logits, temperature)
    if weights is None:
        return 0
    ids = np.arange(len(weights))
    if top_p < 1:
        ids = np.argsort(-weights, kind="stable")
        running = np.cumsum(weights[ids])
        ids = ids[: int(np.searchsorted(running, top_p * running[-1])) + 1]
    running = np.cumsum(weights[ids])
    key = np.array([seed, position], dtype=np.uint64)
    uniform = np.random.Generator(np.random.Philox(key=key)).random()
    drawn = int(np.searchsorted(running, uniform * running[-1], side="right"))
    # The product may round up to the total; the last id of non-zero weight is where the total is reached.
    return int(ids[min(drawn, int(np.searchsorted(running, running[-1])))])


def log_probability(logits: npt.NDArray[np.float32], token: int) -> float:
    """Natural logarithm of the softmax of `logits` at `token`; NaN when no logit is a number above -inf."""
    scores = _scores(logits)
    if (best := scores.max()) == -np.inf:
        return float("nan")
    return float(scores[token] - best - np.log(np.exp(scores - best).sum()))


def _weights(logits: npt.NDArray[np.float32], temperature: float) -> npt.NDArray[np.float64] | None:
    """Unnormalised probabilities; None when no logit is a number above -inf."""
    scores = _scores(logits)
    best = scores.max()
    if best == -np.inf:
        return None
    with np.errstate(over="ignore"):  # a tiny temperature: everything but the best becomes -inf, which is meant
        result: npt.NDArray[np.float64] = np.exp((scores - best) / temperature)
    return result


def _scores(logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """NaN never wins, as in greedy choice."""
    largest = np.finfo(np.float64).max
    return np.nan_to_num(logits.astype(np.float64), nan=-np.inf, neginf=-np.inf, posinf=largest)
