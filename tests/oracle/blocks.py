"""Row-wise building blocks: norm, rotary, hyper-connection streams, attention core, experts.

T rows, S streams, H hidden, N heads, D head width, K keys. All float64.
"""

from __future__ import annotations

import numpy as np

from .config import OracleConfig
from .weights import Weights


def sigmoid(x: np.ndarray) -> np.ndarray:
    """Logistic function that never overflows."""
    return np.exp(-np.logaddexp(0, -x))


def rms_norm(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    """x [..., H] over its root mean square, times weight."""
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def rotate(
    x: np.ndarray, positions: np.ndarray, frequencies: np.ndarray, inverse: bool = False
) -> np.ndarray:
    """Turn the last 2*len(frequencies) dims of x [T, D] or [T, N, D], interleaved pairs, by position."""
    angles = positions[:, None] * frequencies * (-1 if inverse else 1)
    turn = np.exp(1j * angles)
    if x.ndim == 3:
        turn = turn[:, None]
    width = 2 * len(frequencies)
    tail = x[..., -width:]
    turned = (tail[..., 0::2] + 1j * tail[..., 1::2]) * turn
    out = x.copy()
    out[..., -width::2] = turned.real
    out[..., -width + 1 :: 2] = turned.imag
    return out


def expand(embedded: np.ndarray, streams: int) -> tuple[np.ndarray, np.ndarray]:
    """[T, H] -> streams [T, S, H], all equal, and alpha [T, S] that reads stream 0."""
    alpha = np.zeros((len(embedded), streams))
    alpha[:, 0] = 1
    return np.repeat(embedded[:, None], streams, axis=1), alpha


def collapse(streams: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """alpha-weighted sum of the streams [T, H]."""
    return np.einsum("ts,tsh->th", alpha, streams)


def post(y: np.ndarray, streams: np.ndarray, beta: np.ndarray, gamma: np.ndarray) -> np.ndarray:
    """Write a sublayer's output back: beta[k]*y + sum_j gamma[j, k]*streams[j]."""
    return beta[..., None] * y[:, None] + np.einsum("tjk,tjh->tkh", gamma, streams)


class Mixer:
    """The stream mix of one site: streams -> alpha [T, S] (next site), beta [T, S], gamma [T, S, S]."""

    def __init__(self, weights: Weights, site: str, config: OracleConfig) -> None:
        self.fn, self.scale, self.base = (
            weights.array(f"hc_{site}_{part}") for part in ("fn", "scale", "base")
        )
        self.config = config

    def __call__(self, streams: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Project the flattened streams, then squash the three channel groups."""
        config = self.config
        size = config.hc_mult
        flat = streams.reshape(len(streams), size * config.hidden_size)
        projected = flat @ self.fn.T / np.sqrt((flat * flat).mean(-1, keepdims=True) + config.rms_norm_eps)
        channels = projected * np.repeat(self.scale, [size, size, size * size]) + self.base
        alpha = sigmoid(channels[:, :size]) + config.hc_eps
        beta = 2 * sigmoid(channels[:, size : 2 * size])
        logits = channels[:, 2 * size :].reshape(-1, size, size)
        return alpha, beta, sinkhorn(logits, config.hc_sinkhorn_iters, config.hc_eps)


def sinkhorn(logits: np.ndarray, iterations: int, eps: float) -> np.ndarray:
    """Row softmax, then alternate column and row normalisation, columns last. [T, source, destination]."""
    mixing = np.exp(logits - logits.max(-1, keepdims=True))
    mixing = mixing / mixing.sum(-1, keepdims=True) + eps
    mixing = mixing / (mixing.sum(-2, keepdims=True) + eps)
    for _ in range(iterations - 1):
        mixing = mixing / (mixing.sum(-1, keepdims=True) + eps)
        mixing = mixing / (mixing.sum(-2, keepdims=True) + eps)
    return mixing


def attend(q: np.ndarray, keys: np.ndarray, valid: np.ndarray, sink: np.ndarray) -> np.ndarray:
    """q [T, N, D], keys = values [T, K, D], valid [T, K], sink [N] (denominator only) -> [T, N, D].

    A row without any valid key gives zeros.
    """
    # Zero, not multiply: a row that was never written holds NaN on purpose and must not be touched.
    keys = np.where(valid[..., None], keys, 0)
    logits = q @ keys.swapaxes(1, 2) / np.sqrt(q.shape[-1])
    logits = np.where(valid[:, None], logits, -np.inf)
    largest = np.maximum(logits.max(-1, initial=-np.inf), sink)[..., None]
    largest = np.where(np.isneginf(largest), 0, largest)
    weight = np.exp(logits - largest)
    total = weight.sum(-1, keepdims=True) + np.exp(sink[:, None] - largest)
    return weight @ keys / np.where(total > 0, total, 1)


def swiglu(gate: np.ndarray, up: np.ndarray, limit: float) -> np.ndarray:
    """silu of the clipped gate times the clipped up projection."""
    gate = np.minimum(gate, limit)
    return gate * sigmoid(gate) * np.clip(up, -limit, limit)


class Experts:
    """Router, routed experts and the shared expert of one layer."""

    def __init__(self, weights: Weights, config: OracleConfig, count: int, active: int) -> None:
        self.config, self.active = config, active
        self.gate = weights.array("gate.weight")
        self.bias, self.image_bias = weights.array("gate.bias"), weights.array("gate.bias_vl")
        parts = ("w1", "w3", "w2")
        self.routed = [[weights.matrix(f"experts.{e}.{part}") for part in parts] for e in range(count)]
        self.shared = [weights.matrix(f"shared_experts.{part}") for part in parts]
        self.quantize = weights.quantizers.fp8

    def route(self, x: np.ndarray, image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """x [T, H], image [T] -> expert ids [T, k], best first (ties: lower id), and weights [T, k]."""
        score = np.sqrt(np.logaddexp(0, x @ self.gate.T))
        biased = score + np.where(image[:, None], self.image_bias, self.bias)
        expert = np.argsort(-biased, axis=-1, kind="stable")[:, : self.active]
        chosen = np.take_along_axis(score, expert, -1)
        return expert, chosen / (chosen.sum(-1, keepdims=True) + 1e-20) * self.config.routed_scaling_factor

    def __call__(self, x: np.ndarray, image: np.ndarray) -> np.ndarray:
        """x [T, H] -> [T, H]. The routing weight enters before the down projection and its quantizer."""
        expert, weight = self.route(x, image)
        quantized = self.quantize(x)
        y = self._expert(self.shared, quantized, np.ones((len(x), 1)))
        for e in np.unique(expert):
            rows, slot = np.nonzero(expert == e)
            y[rows] += self._expert(self.routed[e], quantized[rows], weight[rows, slot, None])
        return y

    def _expert(self, matrices: list[np.ndarray], x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        gate, up, down = matrices
        activation = swiglu(x @ gate.T, x @ up.T, self.config.swiglu_limit) * weight
        return self.quantize(activation) @ down.T
