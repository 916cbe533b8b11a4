"""EagerModel: the same model in Python eager mode, on the same native kernel bodies, without plan or padding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from dsv41c.compiler.config import ModelConfig
from dsv41c.compiler.model.draft import DraftModel, Drafts
from dsv41c.compiler.model.scope import TensorTree
from dsv41c.compiler.model.state import make_state, state_specs
from dsv41c.compiler.model.transformer import Transformer
from dsv41c.compiler.ops.rows import RowFlag, UploadColumn
from dsv41c.compiler.options import CompileOptions

START = 1


class EagerModel:
    """Holds weights and state; one call of `step` is one packed step. Slots and pages are the caller's."""

    def __init__(self, config: ModelConfig, options: CompileOptions,
                 weights: Mapping[str, torch.Tensor] | TensorTree) -> None:
        self.config = config
        self.options = options.resolved(config)
        self.state = make_state(state_specs(config, self.options), "cpu")
        self.weights = weights
        self.module = Transformer(config, self.options, weights, self.state)
        self.drafter = DraftModel(config, self.options, weights, self.state)

    def step(self, upload: np.ndarray, keep_rows: np.ndarray | None = None,
             logit_rows: np.ndarray | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """upload int32 `[T, 5]`; None keeps every row, or returns all kept ones; an empty list is legal too.
        Returns (logits, tokens)."""
        keep = np.arange(len(upload), dtype=np.int32) if keep_rows is None else keep_rows
        asked = np.arange(len(keep), dtype=np.int32) if logit_rows is None else logit_rows
        inputs = (upload, *(rows if len(rows) else [-1] for rows in (keep, asked)))  # no row: a pad row, of no effect
        with torch.inference_mode():
            logits, tokens = self.module(*(torch.from_numpy(np.ascontiguousarray(x, dtype=np.int32)) for x in inputs))
        return logits[: len(asked)], tokens[: len(asked)]

    def generate(self, prompt: Sequence[int], num_tokens: int, slot: int = 0) -> list[int]:
        """Greedy tokens of one request in one slot, the prompt in one step."""
        tokens: list[int] = []
        upload = request_rows(slot, prompt, 0, self.options)
        keep = self._kept(upload)
        while len(tokens) < num_tokens:
            _, greedy = self.step(upload, keep, np.array([len(upload if keep is None else keep) - 1], dtype=np.int32))
            tokens.append(int(greedy[0]))
            keep = None
            upload = request_rows(slot, tokens[-1:], len(prompt) + len(tokens) - 1, self.options)
        return tokens

    def _kept(self, upload: np.ndarray) -> np.ndarray | None:
        """Rows of a whole prompt that the decoder keeps; None: all. Marks the row where its windows begin."""
        first = max(len(upload) - (self.options.suffix_keep_tokens or len(upload)), 0)
        if first:
            upload[first, UploadColumn.FLAGS] |= RowFlag.FLOOR
        is_compact = self.options.suffix_mode == "compact"
        return np.arange(first, len(upload), dtype=np.int32) if first and is_compact else None

    def draft(self, slots: Sequence[int], golden: Sequence[int]) -> Drafts:
        """Greedy drafts for the newest sampled token `golden[i]` of each slot, whose position is not committed yet."""
        upload = np.zeros((len(slots), len(UploadColumn)), dtype=np.int32)
        upload[:, UploadColumn.SLOT], upload[:, UploadColumn.TOKEN], upload[:, UploadColumn.PAGE] = slots, golden, -1
        with torch.inference_mode():
            return Drafts(*self.drafter(torch.from_numpy(upload)))

    def resume(self, slot: int, prefix_length: int, tokens: Sequence[int], pages: Sequence[int]) -> None:
        """Place a slot behind a prefix hit, as `dsv41c.runtime.load.Runtime.resume` does; nothing is checked."""
        first = max(prefix_length - self.config.sliding_window, 0)
        mapped, ring = self.state["page_table"][slot], self.state["token_ring"][slot]
        self.state["slot_position"][slot] = first
        mapped[:] = self.options.max_num_seqs * self.options.pages_per_slot
        mapped[: len(pages)] = torch.as_tensor(pages, dtype=torch.int32)
        if len(tokens):
            ring[:] = -1
            ring[torch.arange(first - len(tokens), first) % len(ring)] = torch.as_tensor(tokens, dtype=torch.int32)

    def rollback(self, slot: int, length: int) -> None:
        """Forget everything from position `length` on. Rings keep `backtrack` rows more than they need and all
        other state is read by position only, so the next position is all there is to reset."""
        self.state["slot_position"][slot] = length


def request_rows(slot: int, tokens: Sequence[int], position: int, options: CompileOptions) -> np.ndarray:
    """Upload rows int32 `[n, 5]` of one request whose slot owns the pages slot*k .. slot*k+k-1."""
    limit = options.pages_per_slot * options.block_size
    if position + len(tokens) > limit:
        raise ValueError(f"positions up to {position + len(tokens) - 1} of a slot with pages for {limit}")
    rows = np.zeros((len(tokens), 5), dtype=np.int32)
    positions = position + np.arange(len(tokens))
    rows[:, 0], rows[:, 1], rows[:, 2] = slot, np.arange(len(tokens)), tokens
    rows[:, 3] = START if position == 0 else 0
    starts = positions % options.block_size == 0
    rows[:, 4] = np.where(starts, slot * options.pages_per_slot + positions // options.block_size, -1)
    return rows
