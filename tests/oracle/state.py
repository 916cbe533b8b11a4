"""What one request carries from chunk to chunk. Nothing is ever forgotten, so any rollback is exact."""

from __future__ import annotations

import numpy as np

from .config import OracleConfig


class Rows:
    """A growing [count, width] array by position. Positions never written read as NaN."""

    def __init__(self, width: int) -> None:
        self._data = np.full((0, width), np.nan)
        self.count = 0

    def write(self, positions: np.ndarray, values: np.ndarray) -> None:
        """Store values [n, width] at positions [n]."""
        if not len(positions):
            return
        self.count = max(self.count, int(positions.max()) + 1)
        if self.count > len(self._data):
            grown = np.full((2 * self.count, self._data.shape[1]), np.nan)
            grown[: len(self._data)] = self._data
            self._data = grown
        self._data[positions] = values

    def read(self, positions: np.ndarray) -> np.ndarray:
        """positions [...] -> [..., width]."""
        out = np.full((*positions.shape, self._data.shape[1]), np.nan)
        inside = (positions >= 0) & (positions < self.count)
        out[inside] = self._data[positions[inside]]
        return out

    def all(self) -> np.ndarray:
        """Everything up to the last written position, [count, width]."""
        return self._data[: self.count]

    def truncate(self, count: int) -> None:
        """Forget positions from `count` on."""
        self._data[count:] = np.nan
        self.count = min(self.count, count)

    def first(self, count: int) -> Rows:
        """An independent copy of the first `count` rows."""
        copy = Rows(self._data.shape[1])
        copy.write(np.arange(count), self._data[:count])
        return copy


class SourceState:
    """The global entries of one source layer and the raw pairs they are built from."""

    def __init__(self, ratio: int, width: int, index_width: int) -> None:
        self.ratio = ratio
        self.length = 0  # tokens seen; rows before it never store again
        self.kv, self.gate = Rows(width), Rows(width)
        self.entries, self.index_keys = Rows(width), Rows(index_width)

    def truncate(self, length: int) -> None:
        """Forget tokens from `length` on, with every entry that needs one of them."""
        self.length = min(self.length, length)
        for rows in (self.kv, self.gate):
            rows.truncate(length)
        for rows in (self.entries, self.index_keys):
            rows.truncate(length // self.ratio)

    def prefix(self, length: int) -> SourceState:
        """What a prefix cache of `length` tokens keeps: complete entries, no raw pairs."""
        if length % self.ratio:
            raise ValueError(f"prefix of {length} tokens splits a group of {self.ratio}")
        copy = SourceState(self.ratio, 0, 0)
        copy.length = length
        copy.kv, copy.gate = self.kv.first(0), self.gate.first(0)
        copy.entries = self.entries.first(length // self.ratio)
        copy.index_keys = self.index_keys.first(length // self.ratio)
        return copy


class State:
    """One request: token history, window keys per layer and draft layer, entries per source layer.

    `floor` and `decoder_floor` are the lowest readable window positions of the two halves.
    """

    def __init__(self, config: OracleConfig) -> None:
        self.config = config
        self.length = 0
        self.tokens = np.zeros(0, dtype=np.int64)  # -1 marks an image row
        self.floor = 0
        self.decoder_floor = 0
        self.windows = [Rows(config.head_dim) for _ in range(config.num_hidden_layers)]
        self.draft_windows = [Rows(config.head_dim) for _ in range(config.num_nextn_predict_layers)]
        self.sources = {
            layer: SourceState(config.compress_ratios[layer], config.head_dim, config.index_head_dim)
            for layer in config.kv_source_layer_ids
        }

    def rollback(self, length: int) -> None:
        """Return to the state after `length` tokens."""
        self.length = length
        self.tokens = self.tokens[:length]
        for window in [*self.windows, *self.draft_windows]:
            window.truncate(length)
        for source in self.sources.values():
            source.truncate(length)

    def prefix(self, length: int) -> State:
        """A cache hit of `length` tokens: global entries and token ids only, windows must be replayed."""
        hit = State(self.config)
        hit.length = length
        hit.tokens = self.tokens[:length].copy()
        hit.floor = hit.decoder_floor = max(0, length - self.config.sliding_window)
        hit.sources = {layer: source.prefix(length) for layer, source in self.sources.items()}
        return hit

    def caches(self) -> dict[str, np.ndarray]:
        """Every stored array by name, for comparing two states."""
        found = {f"window.{i}": window.all() for i, window in enumerate(self.windows)}
        found |= {f"draft_window.{i}": window.all() for i, window in enumerate(self.draft_windows)}
        for layer, source in self.sources.items():
            found[f"compressed.{layer}"] = source.entries.all()
            found[f"index_key.{layer}"] = source.index_keys.all()
            found[f"pair.{layer}.kv"], found[f"pair.{layer}.gate"] = source.kv.all(), source.gate.all()
        return found
