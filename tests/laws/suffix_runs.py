"""One prompt with a kept suffix of any length, cut into chunks in any way, then tokens one by one, on any engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from laws.engines import Engine, Subject
from laws.schedules import Workload, slot_bytes, upload_rows

FLOOR = 8
BLOCK = 4


@dataclass(frozen=True)
class SuffixRun:
    """logits by position of every kept row, as far as a step may give them; bytes of the slot's state by name."""

    logits: dict[int, np.ndarray]
    state: dict[str, bytes]


def chunks(cuts: Sequence[int], length: int, most: int) -> list[int]:
    """Sizes between the cuts, none larger than `most`."""
    sizes = np.diff([0, *cuts, length])
    return [int(part) for size in sizes for part in [most] * (size // most) + [size % most] if part]


def run_suffix(engine: Engine, subject: Subject, tokens: Sequence[int], prompt_length: int, keep: int, slot: int, *,
               compact: bool, cuts: Sequence[int] = ()) -> SuffixRun:
    """The first `prompt_length` tokens are a prompt whose last `keep` rows the decoder keeps; the rest is decoded."""
    workload = Workload((tuple(tokens),), (slot,), ())
    rect = max(prompt_length - keep, 0)
    most = subject.options.max_num_batched_tokens
    done, logits = 0, {}
    for take in chunks(cuts, prompt_length, most) + [1] * (len(tokens) - prompt_length):
        upload = upload_rows(workload, 0, done, take, BLOCK, subject.options.pages_per_slot)
        positions = done + np.arange(take)
        upload[(positions == rect) & (positions > 0), 3] |= FLOOR
        kept = np.flatnonzero((positions >= rect) | (not compact)).astype(np.int32)
        asked = np.flatnonzero(positions[kept] >= rect).astype(np.int32)[-subject.options.max_num_seqs :]
        rows, _ = engine.step(upload, kept, asked)
        logits |= dict(zip(positions[kept][asked].tolist(), rows, strict=False))
        done += take
    names = sorted(name for name in state_names(subject) if name != "window_floor")
    pages = subject.options.pages_per_slot
    state = {name: slot_bytes(engine, name, slot, done, BLOCK, pages) for name in names}
    return SuffixRun(logits, state | {"window_floor": engine.state("window_floor")[slot : slot + 1].tobytes()})


def state_names(subject: Subject) -> list[str]:
    from dsv41c.compiler.model.state import state_specs

    return [s.name for s in state_specs(subject.view.config, subject.options)]


def differences(left: SuffixRun, right: SuffixRun) -> list[object]:
    assert left.logits.keys() == right.logits.keys() and left.state.keys() == right.state.keys()
    rows = [p for p in sorted(left.logits) if left.logits[p].tobytes() != right.logits[p].tobytes()]
    return rows + [name for name in sorted(left.state) if left.state[name] != right.state[name]]


