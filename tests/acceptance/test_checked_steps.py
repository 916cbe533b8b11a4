"""Acceptance 4: 2,000 random steps under full checks give the bits of the unchecked eager model and touch nothing else.

Every step is compared with the eager model: the logits of its rows, and every byte of state outside the trash slot and
the trash page. Four seeds of 500 steps each, so that they run side by side.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from dsv41c.compiler.options import CompileOptions
from dsv41c.runtime.load import Runtime, load
from laws.engines import Subject, TorchEngine

STEPS, SLOTS, ROWS, BLOCK, LENGTH = 500, 7, 48, 4, 64
PAGES_PER_SLOT = LENGTH // BLOCK
NUMERICS = {0: ("float32", "off"), 1: ("float32", "off"), 2: ("bfloat16", "fake"), 3: ("bfloat16", "fake")}
START, ON_DEVICE, TRASH = 1, -1, 1  # the last slot and the last page take what pad rows write
BY_SLOT, BY_PAGE = SLOTS + TRASH, SLOTS * PAGES_PER_SLOT + TRASH


@dataclass
class Request:
    """A request in a slot: how many rows it has had, how many it will have, and its pages in order."""

    position: int
    length: int
    pages: list[int] = field(default_factory=list)
    has_token: bool = False  # the slot's state holds the token that its last logits chose


class Traffic:
    """Random steps: prompts in chunks of any length, decoding, cancelled requests whose slots others take."""

    def __init__(self, seed: int, vocabulary: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.vocabulary = vocabulary
        self.requests: dict[int, Request] = {}
        self.free = list(range(SLOTS * PAGES_PER_SLOT))

    def step(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The upload, the rows that give logits (at most one for each slot), and the slots that take part."""
        rng, room, parts = self.rng, ROWS, []
        most = rng.choice([1, 1, 3, 9, 20, 48])  # decoding, sizes between rungs, chunks longer than a ring
        for slot in rng.permutation(SLOTS)[: rng.integers(1, SLOTS + 1)]:
            if room:
                parts.append(self._rows(int(slot), min(int(rng.integers(1, most + 1)), room)))
                room -= len(parts[-1])
        upload = np.concatenate(parts)
        ends = np.cumsum([len(part) for part in parts]).astype(np.int32) - 1
        wanted = rng.random(len(ends)) < rng.choice([0.0, 0.5, 1.0])
        everything = len(upload) <= SLOTS and rng.random() < 0.5  # the flow in which every row gives logits
        logits = np.arange(len(upload), dtype=np.int32) if everything else ends[wanted]
        for slot in upload[logits, 0]:
            self.requests[int(slot)].has_token = True
        return upload, logits, np.array([part[0, 0] for part in parts])

    def pages_of(self, slots: np.ndarray) -> list[int]:
        return [page for slot in slots for page in self.requests[int(slot)].pages]

    def _rows(self, slot: int, count: int) -> np.ndarray:
        request = self.requests.get(slot)
        if request is None or request.position == request.length or self.rng.random() < 0.05:
            self.free += request.pages if request else []
            request = self.requests[slot] = Request(0, int(self.rng.integers(1, LENGTH + 1)))
        count = min(count, request.length - request.position)
        rows = np.full((count, 5), -1, np.int32)
        rows[:, 0], rows[:, 1], rows[:, 3] = slot, np.arange(count), START if request.position == 0 else 0
        rows[:, 2] = self.rng.integers(0, self.vocabulary, count)
        if request.has_token and self.rng.random() < 0.5:
            rows[0, 2] = ON_DEVICE
        for row in rows:
            if request.position % BLOCK == 0:
                request.pages.append(self.free.pop(int(self.rng.integers(len(self.free)))))
                row[4] = request.pages[-1]
            request.position += 1
        return rows


@pytest.mark.parametrize("seed", NUMERICS)
def test_random_steps_under_full_checks(seed: int, tiny_checkpoint: Path,
                                        compiled_artifact: Callable[..., Path]) -> None:
    dtype, quantizers = NUMERICS[seed]
    options = {"dtype": dtype, "quantizers": quantizers, "max_model_len": LENGTH, "max_num_seqs": SLOTS,
               "max_num_batched_tokens": ROWS, "block_size": BLOCK}
    subject = Subject.build(tiny_checkpoint, compiled_artifact("tiny", 0, **options), CompileOptions(**options))
    eager, names = subject.torch_engine(), list(subject.torch_engine().model.state)
    with load(subject.artifact, check=f"full:{seed}") as checked:
        traffic = Traffic(seed, subject.view.config.vocab_size)
        before = state_of(checked, names)
        for number in range(STEPS):
            upload, wanted, slots = traffic.step()
            keep = np.arange(len(upload), dtype=np.int32)
            checked.step(upload, keep, wanted, eager=bool(traffic.rng.random() < 0.2))
            logits = eager_logits(eager, upload, wanted)
            if len(wanted):
                assert checked.output("logits").tobytes() == logits.tobytes(), f"logits of step {number}"
            after = state_of(checked, names)
            assert differing(after, state_of(eager, names)) == [], f"state after step {number}"
            assert touched(before, after, slots, traffic.pages_of(slots)) == [], f"others' state in step {number}"
            before = after


def eager_logits(eager: TorchEngine, upload: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The eager model always gives logits: of a step that wants none, its chosen token is taken back."""
    tokens, keep = eager.model.state["slot_token"], np.arange(len(upload), dtype=np.int32)
    held = tokens.clone()
    logits = eager.step(upload, keep, wanted if len(wanted) else keep[-1:])[0]
    if not len(wanted):
        tokens.copy_(held)
    return logits


def state_of(engine: Runtime | TorchEngine, names: list[str]) -> dict[str, np.ndarray]:
    return {name: engine.state(name)[:-TRASH].copy() for name in names}


def differing(left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> list[str]:
    return [name for name in left if left[name].tobytes() != right[name].tobytes()]


def touched(before: dict[str, np.ndarray], after: dict[str, np.ndarray], slots: np.ndarray,
            pages: list[int]) -> list[str]:
    """State tensors that changed in a slot or page that has no row in the step."""
    own = {BY_SLOT - TRASH: slots, BY_PAGE - TRASH: np.array(pages, int)}
    return [name for name in before
            if (np.delete(before[name], own[len(before[name])], 0).tobytes()
                != np.delete(after[name], own[len(before[name])], 0).tobytes())]
