"""Numbers that follow from a config: Engram primes and multipliers, rotary frequencies."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Primes = tuple[tuple[tuple[int, ...], ...], ...]


def is_prime(number: int) -> bool:
    """True for a prime; trial division is enough below 2^25, where every table size lies."""
    if number < 4:
        return number > 1
    if number % 2 == 0:
        return False
    return all(number % divisor for divisor in range(3, math.isqrt(number) + 1, 2))


def engram_primes(layers: int, max_ngram: int, heads: int, vocab_size: int) -> Primes:
    """Table moduli by [layer][n - 2][head].

    Every (layer, n) group restarts at vocab_size - 1 and takes the next primes that no group has used, so all
    moduli of a model differ.
    """
    used: set[int] = set()
    result = []
    for _ in range(layers):
        groups = []
        for _ in range(max_ngram - 1):
            group: list[int] = []
            candidate = vocab_size - 1
            while len(group) < heads:
                candidate += 1
                if candidate not in used and is_prime(candidate):
                    used.add(candidate)
                    group.append(candidate)
            groups.append(tuple(group))
        result.append(tuple(groups))
    return tuple(result)


def table_rows(primes: Primes) -> tuple[int, ...]:
    """Rows of each Engram table: every (n, head) pair owns one range as long as its prime."""
    return tuple(sum(map(sum, groups)) for groups in primes)


def engram_multipliers(layer_ids: Sequence[int], max_ngram: int, compressed_vocab: int) -> NDArray[np.int64]:
    """Odd hash multipliers int64 [layers, max_ngram], bounded so that id * multiplier stays below 2^63."""
    bound = max(1, (int(np.iinfo(np.int64).max) // compressed_vocab) // 2)
    rows = [
        np.random.default_rng(10007 * layer).integers(0, bound, size=max_ngram, dtype=np.int64) * 2 + 1
        for layer in layer_ids
    ]
    return np.stack(rows)


def plain_frequencies(rope_dim: int, theta: float) -> NDArray[np.float64]:
    """Angles per position of the interleaved pairs, without scaling."""
    result: NDArray[np.float64] = 1.0 / theta ** (np.arange(0, rope_dim, 2, dtype=np.float64) / rope_dim)
    return result


def yarn_frequencies(
    rope_dim: int, theta: float, factor: float, beta_fast: float, beta_slow: float, original_positions: int
) -> NDArray[np.float64]:
    """YaRN frequency interpolation; this model uses no magnitude factor beside it."""

    def dimension(rotations: float) -> float:
        ratio = original_positions / (rotations * 2 * math.pi)
        return rope_dim * math.log(ratio) / (2 * math.log(theta))

    low = max(math.floor(dimension(beta_fast)), 0)
    high: float = min(math.ceil(dimension(beta_slow)), rope_dim - 1)
    if low == high:
        high += 0.001
    ramp = np.clip((np.arange(rope_dim // 2, dtype=np.float64) - low) / (high - low), 0.0, 1.0)
    plain = plain_frequencies(rope_dim, theta)
    result: NDArray[np.float64] = plain / factor * ramp + plain * (1.0 - ramp)
    return result
