"""The whole V4.1 model in NumPy float64: one request at a time, every row of a chunk at once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from .blocks import collapse, expand, rms_norm
from .config import engram_token_map, read_config
from .draft import Draft
from .layers import Chunk, Layer, backbone_layer, window_keys
from .reader import CheckpointReader, decode
from .state import State
from .weights import QUANTIZERS, Weights


@dataclass(frozen=True)
class Replay:
    """Bounded decoder replay of a prompt: only the last `keep` of its rows run the decoder.

    `compact` drops the other rows at the decoder boundary, `mask` computes them but hides their window keys.
    """

    mode: Literal["compact", "mask"]
    prompt_length: int
    keep: int

    @property
    def first_kept(self) -> int:
        """Lowest position whose decoder window keys exist."""
        return max(0, self.prompt_length - self.keep)


class OracleModel:
    """A checkpoint directory as a float64 model. Weights are dequantised once, at construction."""

    def __init__(
        self, directory: Path, quantizers: str = "off", overrides: dict[str, Any] | None = None
    ) -> None:
        directory = Path(directory)
        self.config = config = read_config(directory, overrides)
        weights = Weights(CheckpointReader(directory), QUANTIZERS[quantizers])
        token_map = engram_token_map(directory)
        self.layers = [
            backbone_layer(weights.under(f"layers.{i}"), config, i, token_map)
            for i in range(config.num_hidden_layers)
        ]
        self._embed = weights.reader.stored("embed.weight")
        self.norm, self.head = weights.array("norm.weight"), weights.linear("head")
        self.draft_model = Draft(weights, config)

    def new_state(self) -> State:
        """An empty request."""
        return State(self.config)

    def embed(self, token_ids: np.ndarray) -> np.ndarray:
        """[T] -> [T, H]; ids outside the table give zeros."""
        known = (token_ids >= 0) & (token_ids < self.config.vocab_size)
        rows = decode(self._embed.dtype, self._embed.raw[np.where(known, token_ids, 0)])
        return np.where(known[:, None], rows, 0)

    def forward(
        self,
        state: State,
        token_ids: Any,
        *,
        image: Any = None,
        replay: Replay | None = None,
        start: int | None = None,
        candidates: bool = True,
    ) -> np.ndarray:
        """Run the next rows of a request; float64 logits [rows, V] (kept rows only under compact replay).

        `image` marks image-like rows. `start` < state.length re-runs cached positions (encoder replay):
        windows are rewritten from there, global entries are not. `candidates=False` ignores the blocks.
        """
        chunk = self._open(state, np.asarray(token_ids, dtype=np.int64), image, start)
        features = []
        for index, layer in enumerate(self.layers):
            if layer.engram:
                chunk.streams = layer.engram(chunk.streams, state.tokens, chunk.positions, chunk.image)
            if layer.compressor:
                x = layer.attention_input(chunk)
                layer.compressor.store(x, chunk.positions, state.sources[index])
            if index == self.config.decoder_start and replay:
                state.decoder_floor = max(state.floor, replay.first_kept)
                if replay.mode == "compact":
                    chunk = chunk.take(chunk.positions >= replay.first_kept)
            if index in self.config.dspark_target_layer_ids:
                features.append(chunk.streams.mean(1))
            layer.finish(chunk, self._attend(index, chunk, state, candidates))
        self._commit_draft(features, chunk, state)
        state.length = len(state.tokens)
        hidden = collapse(chunk.streams, chunk.alpha)
        return self.head(rms_norm(hidden, self.norm, self.config.rms_norm_eps))

    def _open(self, state: State, token_ids: np.ndarray, image: Any, start: int | None) -> Chunk:
        """Append the new tokens to the history and embed all rows."""
        flags = np.zeros(len(token_ids), dtype=bool) if image is None else np.asarray(image, dtype=bool)
        first = state.length if start is None else start
        history = np.where(flags, -1, token_ids)
        if first > state.length:
            raise ValueError(f"start {first} lies beyond the {state.length} tokens of the request")
        state.tokens = np.concatenate([state.tokens, history[state.length - first :]])
        streams, alpha = expand(self.embed(token_ids), self.config.hc_mult)
        return Chunk(first + np.arange(len(token_ids)), flags, streams, alpha)

    def _attend(self, index: int, chunk: Chunk, state: State, candidates: bool) -> np.ndarray:
        """Attention sublayer of layer `index` -> [T, H]; writes its window keys, updates the selection."""
        layer, config, positions = self.layers[index], self.config, chunk.positions
        attention = layer.attention
        x = layer.attention_input(chunk)
        latent = attention.latent(x)
        floor = state.floor if index < config.decoder_start else state.decoder_floor
        written = positions >= floor
        own = attention.window_key(x, positions)
        state.windows[index].write(positions[written], own[written])
        keys, valid = window_keys(state.windows[index], positions, config.sliding_window, floor)
        if config.compress_ratios[index] > 0:
            source = state.sources[config.kv_source(index)]
            if layer.indexer:
                chunk.selection = layer.indexer.select(
                    latent, x, positions, source, chunk.selection, candidates
                )
            assert chunk.selection is not None, f"layer {index} has no index source before it"
            selected = chunk.selection.entries
            keys = np.concatenate([keys, source.entries.read(selected)], axis=1)
            valid = np.concatenate([valid, selected >= 0], axis=1)
        return attention.output(attention.query(latent, positions), keys, valid, positions)

    def _commit_draft(self, features: list[np.ndarray], chunk: Chunk, state: State) -> None:
        """Draft window keys of the rows whose decoder output counts."""
        kept = chunk.positions >= state.decoder_floor
        taps = np.concatenate(features, axis=-1)[kept]
        self.draft_model.commit(taps, chunk.positions[kept], state)

    def draft(self, state: State, token: int) -> tuple[list[int], list[float]]:
        """Proposals and confidences after `token`, the newest sampled one (position state.length)."""
        ids = np.full(self.config.dspark_block_size, self.config.dspark_noise_token_id)
        ids[0] = token
        hidden = self.draft_model.hidden(state, self.embed(ids))
        return self.draft_model.propose(hidden, self.head, token)

    def generate(self, prompt: Any, count: int) -> list[int]:
        """`count` greedy tokens after `prompt` (EOS does not stop; lowest id on ties)."""
        state = self.new_state()
        logits = self.forward(state, prompt)
        tokens = [int(np.argmax(logits[-1]))]
        while len(tokens) < count:
            tokens.append(int(np.argmax(self.forward(state, tokens[-1:])[-1])))
        return tokens

    def continuation_logits(self, prompt: Any, tokens: Any) -> np.ndarray:
        """The distributions `tokens` were taken from, [len(tokens), V], by one forward of all rows."""
        prompt, tokens = list(prompt), list(tokens)
        return self.forward(self.new_state(), prompt + tokens[:-1])[len(prompt) - 1 :]


__all__ = ["Layer", "OracleModel", "Replay", "State"]
