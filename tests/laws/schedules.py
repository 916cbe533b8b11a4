"""Requests with fixed tokens, cut into steps in any way; running them collects logits by (request, position)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from laws.engines import Engine

START = 1


@dataclass(frozen=True)
class Workload:
    """tokens[i]: all tokens of request i. steps: for each step, (request, number of tokens) in order."""

    tokens: tuple[tuple[int, ...], ...]
    slots: tuple[int, ...]
    steps: tuple[tuple[tuple[int, int], ...], ...]


@st.composite
def requests(draw: st.DrawFn, vocab: int, most: int = 4, longest: int = 45) -> tuple[tuple[int, ...], ...]:
    count = draw(st.integers(1, most))
    lengths = [draw(st.integers(1, longest)) for _ in range(count)]
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return tuple(tuple(int(t) for t in rng.integers(0, vocab, n)) for n in lengths)


@st.composite
def schedules(draw: st.DrawFn, tokens: tuple[tuple[int, ...], ...], num_slots: int, max_rows: int) -> Workload:
    """Any interleaving: each step takes some unfinished requests, in any order, with chunks of any length."""
    slots = draw(st.permutations(range(num_slots)))[: len(tokens)]
    done = [0] * len(tokens)
    steps: list[tuple[tuple[int, int], ...]] = []
    longest = draw(st.sampled_from((1, 3, 7, 13, 45)))
    while any(d < len(t) for d, t in zip(done, tokens, strict=True)):
        waiting = [i for i in range(len(tokens)) if done[i] < len(tokens[i])]
        chosen = draw(st.permutations(waiting))[: draw(st.integers(1, len(waiting)))]
        step, room = [], max_rows
        for i in chosen:
            take = min(draw(st.integers(1, longest)), len(tokens[i]) - done[i], room)
            if take:
                step.append((i, take))
                done[i], room = done[i] + take, room - take
        steps.append(tuple(step))
    return Workload(tokens, tuple(slots), tuple(steps))


@dataclass
class Outcome:
    """logits bytes by (request, position); state bytes of the requests' slots by (request, name)."""

    logits: dict[tuple[int, int], bytes]
    state: dict[tuple[int, str], bytes]
    rows: dict[tuple[int, int], np.ndarray]


def run_workload(engine: Engine, workload: Workload, block_size: int, pages_per_slot: int,
                 state_names: tuple[str, ...]) -> Outcome:
    done = [0] * len(workload.tokens)
    outcome = Outcome({}, {}, {})
    for step in workload.steps:
        parts, owners = [], []
        for request, take in step:
            parts.append(upload_rows(workload, request, done[request], take, block_size, pages_per_slot))
            owners += [(request, done[request] + i) for i in range(take)]
            done[request] += take
        upload = np.concatenate(parts)
        everything = np.arange(len(upload), dtype=np.int32)
        logits, _ = engine.step(upload, everything, everything)
        for row, owner in zip(logits, owners, strict=True):
            outcome.logits[owner], outcome.rows[owner] = row.tobytes(), row.copy()
    for request, slot in enumerate(workload.slots):
        for name in state_names:
            outcome.state[request, name] = slot_bytes(engine, name, slot, done[request], block_size, pages_per_slot)
    return outcome


def upload_rows(workload: Workload, request: int, position: int, take: int, block_size: int,
                pages_per_slot: int) -> np.ndarray:
    slot = workload.slots[request]
    rows = np.zeros((take, 5), dtype=np.int32)
    positions = position + np.arange(take)
    rows[:, 0], rows[:, 1] = slot, np.arange(take)
    rows[:, 2] = workload.tokens[request][position : position + take]
    rows[:, 3] = START if position == 0 else 0
    rows[:, 4] = np.where(positions % block_size == 0, slot * pages_per_slot + positions // block_size, -1)
    return rows


def slot_bytes(engine: Engine, name: str, slot: int, length: int, block_size: int, pages_per_slot: int) -> bytes:
    """Live bytes of one slot: rings up to the positions reached, page pools up to the complete entries."""
    state = engine.state(name)
    if name.startswith(("compressed", "index_key")):
        entries = state.shape[1]
        pages = state[slot * pages_per_slot : (slot + 1) * pages_per_slot].reshape(-1, state.shape[2])
        return pages[: length * entries // block_size].tobytes()
    if name.startswith(("window", "pair", "token_ring")):
        return state[slot][: min(length, state.shape[1])].tobytes()
    return state[slot : slot + 1].tobytes() if name == "slot_position" else b""
