"""Prefix hits on any engine: a prompt that is cached once, and slots that continue behind any even length of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dsv41c.runtime.step_rows import FLOOR, HIT, REPLAY, START
from laws.engines import Engine, Subject
from laws.schedules import Workload, upload_rows
from laws.suffix_runs import BLOCK, chunks, state_names

WINDOW, HISTORY = 8, 2  # of tiny: sliding window, tokens before its own that a row looks back at
POOLS = ("compressed", "index_key")


@dataclass(frozen=True)
class Hit:
    """A prompt of `length` tokens whose first `prefix` positions are cached. `keep`: rows of it that the decoder keeps,
    None where the artifact has no suffix. Behind it the rest of `tokens` is decoded."""

    tokens: tuple[int, ...]
    length: int
    prefix: int
    keep: int | None = None
    compact: bool = True

    @property
    def first(self) -> int:
        return max(self.prefix - WINDOW, 0)

    @property
    def first_kept(self) -> int:
        return self.first if self.keep is None else max(self.length - self.keep, self.first)

    def flags(self, positions: np.ndarray) -> np.ndarray:
        flags = np.where(positions == self.first, HIT if self.prefix else START, 0)
        flags |= np.where(positions < self.prefix, REPLAY, 0)
        if self.keep is not None:
            begins = (positions == self.first_kept) | ((positions == self.first) & (not self.compact))
            flags |= np.where(begins & (positions > 0), FLOOR, 0)
        return flags

    def rows(self, slot: int, position: int, take: int, pages_per_slot: int) -> tuple[np.ndarray, np.ndarray]:
        """Upload rows from `position` on, and which of them the decoder keeps."""
        workload = Workload((self.tokens,), (slot,), ())
        upload = upload_rows(workload, 0, position, take, BLOCK, pages_per_slot)
        positions = position + np.arange(take)
        upload[:, 3] = self.flags(positions)
        upload[positions < self.prefix, 4] = -1
        return upload, (positions >= self.first_kept) | (self.keep is None or not self.compact)


@dataclass(frozen=True)
class HitRun:
    """Logits of kept rows by position; bytes by name and position of the slot's state."""

    logits: dict[int, np.ndarray]
    state: dict[tuple[str, int], bytes]


def fill_cache(engine: Engine, subject: Subject, tokens: Sequence[int], slot: int = 0) -> None:
    """Run the prompt whose pages the hits share."""
    workload, done = Workload((tuple(tokens),), (slot,), ()), 0
    for take in chunks((), len(tokens), subject.options.max_num_batched_tokens):
        upload = upload_rows(workload, 0, done, take, BLOCK, subject.options.pages_per_slot)
        engine.step(upload, np.arange(take, dtype=np.int32), np.zeros(0, np.int32))
        done += take


def place(engine: Engine, subject: Subject, hit: Hit, slot: int, source: int = 0) -> None:
    """Resume `slot` on the pages of `source`; of a page that the prefix ends in, it gets a copy."""
    per_slot, whole = subject.options.pages_per_slot, hit.prefix // BLOCK
    pages = source * per_slot + np.arange(-(-hit.prefix // BLOCK), dtype=np.int32)
    if whole < len(pages):
        for name in state_names(subject):
            if name.startswith(POOLS):
                engine.state(name)[slot * per_slot + whole] = engine.state(name)[pages[whole]]
        pages[whole] = slot * per_slot + whole
    history = np.array(hit.tokens[max(hit.first - HISTORY, 0) : hit.first], dtype=np.int32)
    engine.resume(slot, hit.prefix, history, pages)


def run_hit(engine: Engine, subject: Subject, hit: Hit, slot: int, cuts: Sequence[int] = ()) -> HitRun:
    """`cuts`: positions behind hit.first at which the rows are cut into steps."""
    place(engine, subject, hit, slot)
    logits = run_rows(engine, subject, hit, slot, cuts)
    return HitRun(logits, slot_state(engine, subject, hit, slot))


def whole_run(engine: Engine, subject: Subject, hit: Hit, slot: int) -> HitRun:
    """The same tokens without a hit, and the same part of the state."""
    logits = run_rows(engine, subject, replace(hit, prefix=0), slot)
    return HitRun(logits, slot_state(engine, subject, hit, slot))


def run_rows(engine: Engine, subject: Subject, hit: Hit, slot: int, cuts: Sequence[int] = ()) -> dict[int, np.ndarray]:
    done, logits = hit.first, {}
    sizes = chunks([cut - hit.first for cut in cuts], hit.length - hit.first, subject.options.max_num_batched_tokens)
    for take in sizes + [1] * (len(hit.tokens) - hit.length):
        upload, kept = hit.rows(slot, done, take, subject.options.pages_per_slot)
        keep = np.flatnonzero(kept).astype(np.int32)
        positions = done + keep
        asked = np.flatnonzero(positions >= hit.first_kept).astype(np.int32)[-subject.options.max_num_seqs :]
        rows, _ = engine.step(upload, keep, asked)
        logits |= dict(zip(positions[asked].tolist(), rows, strict=False))
        done += take
    return logits


def slot_state(engine: Engine, subject: Subject, hit: Hit, slot: int) -> dict[tuple[str, int], bytes]:
    """Of every ring what was written since the hit, of every pool all entries, of the slot itself its numbers."""
    found: dict[tuple[str, int], bytes] = {}
    length = len(hit.tokens)
    decoder = {f"window_{n}" for n in range(subject.view.config.decoder_start, subject.view.config.num_hidden_layers)}
    for name in state_names(subject):
        state = engine.state(name)
        if name.startswith(POOLS):
            pages = engine.state("page_table")[slot][: -(-length // BLOCK)]
            entries = state[pages].reshape(-1, state.shape[2])[: length * state.shape[1] // BLOCK]
            found |= {(name, j): entry.tobytes() for j, entry in enumerate(entries)}
        elif state.ndim > 1 and name != "page_table":
            is_decoder = name in decoder or name.startswith("draft_window")
            first = hit.prefix if name.startswith("pair") else hit.first_kept if is_decoder else hit.first
            found |= {(name, p): state[slot, p % state.shape[1]].tobytes()
                      for p in range(max(first, length - state.shape[1]), length)}
        elif name in ("slot_position", "replay_floor", "window_floor"):
            found[name, 0] = state[slot].tobytes()
    return found


def differences(left: HitRun, right: HitRun) -> list[object]:
    """Where two runs of one hit differ."""
    assert left.logits.keys() == right.logits.keys() and left.state.keys() == right.state.keys()
    return [p for p, row in left.logits.items() if row.tobytes() != right.logits[p].tobytes()] + [
        at for at in left.state if left.state[at] != right.state[at]]
