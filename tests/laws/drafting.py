"""Drafts of every kind for the generation loop on an executor, and runs whose tokens, logits and state are compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dsv41c.compiler.config import ModelConfig
from dsv41c.compiler.model.state import state_specs
from dsv41c.compiler.options import CompileOptions
from dsv41c.runtime.draft_schedule import static_schedule
from dsv41c.runtime.generate import generate
from dsv41c.runtime.limits import Limits
from dsv41c.runtime.load import Runtime
from dsv41c.runtime.requests import Completion, Request
from dsv41c.runtime.speculation import ModelDrafts, Speculation
from dsv41c.runtime.step_rows import ActiveRequest
from tests.laws.live_caches import live_caches

KINDS = ("model", "right", "wrong", "empty")
Plan = Sequence[tuple[str, int]]  # kind and width of each step, over and over


@dataclass
class AnyDrafts:
    """For request i at its n-th token the plan's entry i + n; `truth` are the tokens of a run without drafts."""

    model: ModelDrafts
    truth: Sequence[Sequence[int]]
    plan: Plan
    vocab: int

    def __call__(self, going: Sequence[ActiveRequest], rooms: Sequence[int]) -> list[list[int]]:
        made = self.model(going, rooms)
        found = []
        for one, room, drafts in zip(going, rooms, made, strict=True):
            kind, width = self.plan[(one.index + len(one.tokens)) % len(self.plan)]
            ahead = list(self.truth[one.index][len(one.tokens) :])
            wrong = [(token + 1) % self.vocab for token in ahead]
            found.append({"model": drafts, "right": ahead, "wrong": wrong, "empty": []}[kind][: min(width, room)])
        return found


@dataclass(frozen=True)
class Drafting:
    """One artifact that was compiled with drafts."""

    artifact: Path
    options: CompileOptions
    config: ModelConfig

    @classmethod
    def of(cls, artifact: Path, **options: object) -> Drafting:
        config = ModelConfig.load(artifact)
        return cls(artifact, CompileOptions(**options).resolved(config), config)  # type: ignore[arg-type]

    @property
    def limits(self) -> Limits:
        return Limits.read(self.artifact)

    def planned(self, runtime: Runtime, truth: Sequence[Completion], plan: Plan) -> Speculation:
        drafts = AnyDrafts(ModelDrafts(runtime, static_schedule), [c.tokens for c in truth], plan,
                           self.config.vocab_size)
        return Speculation(self.options.draft_len, drafts, runtime.rollback)

    def run(self, runtime: Runtime, limits: Limits, requests: Sequence[Request], speculation: Speculation | None,
            eager: bool = False) -> tuple[list[Completion], list[dict[str, np.ndarray]]]:
        """Completions with logits, and the live caches of each; at most as many requests as slots, so that request i
        has slot i."""
        assert len(requests) <= limits.max_num_seqs
        done = generate(runtime, limits, requests, keep_logits=True, speculation=speculation, eager=eager)
        names = [spec.name for spec in state_specs(self.config, self.options)]
        return done, [live_caches(runtime.state, names, self.config, self.options, slot,
                                  len(c.prompt_ids) + len(c.tokens) - 1) for slot, c in enumerate(done)]


def assert_same_run(got: tuple[list[Completion], list[dict[str, np.ndarray]]],
                    want: tuple[list[Completion], list[dict[str, np.ndarray]]]) -> None:
    """Tokens, why they end, bits of logits and of what a further step may read."""
    for one, other in zip(got[0], want[0], strict=True):
        assert (one.tokens, one.finish_reason) == (other.tokens, other.finish_reason)
        assert one.logits is not None and other.logits is not None
        assert one.logits.tobytes() == other.logits.tobytes()
    for caches, expected in zip(got[1], want[1], strict=True):
        differing = [name for name in expected if caches[name].tobytes() != expected[name].tobytes()]
        assert differing == []


def random_requests(seed: int, count: int, vocab: int, longest: int,
                    make: Callable[[list[int], np.random.Generator], Request]) -> list[Request]:
    """Prompts of 1 to `longest` random tokens."""
    rng = np.random.default_rng(seed)
    return [make([int(t) for t in rng.integers(0, vocab, int(rng.integers(1, longest + 1)))], rng)
            for _ in range(count)]
