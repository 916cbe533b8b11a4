"""A prompt in one step with --suffix-mode compact against off: what running half the model on its end saves."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dsv41c.compiler.checkpoint.make import make_checkpoint
from dsv41c.compiler.driver import compile_checkpoint
from dsv41c.compiler.options import CompileOptions
from dsv41c.runtime.limits import Limits
from dsv41c.runtime.load import Runtime, load
from dsv41c.runtime.requests import Request
from dsv41c.runtime.step_rows import ActiveRequest, Part, step_rows
from dsv41c.tools.bench.turns import medians

MODES = ("off", "compact")


@dataclass(frozen=True)
class SuffixResult:
    """Medians in microseconds of the whole step; `shares`: of its methods in the last step, by mode."""

    config: str
    rows: int
    keep: int
    off_us: float
    compact_us: float
    ratio: float
    shares: dict[str, dict[str, float]]


def bench_suffix(config: str, rows: int, repeat: int) -> SuffixResult:
    """Both artifacts of one checkpoint, loaded together; their steps take turns."""
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "checkpoint"
        make_checkpoint(config, checkpoint, max_position_embeddings=max(rows + 1, 4096))
        runtimes, limits = [], []
        for mode in MODES:
            artifact = Path(folder) / mode
            compile_checkpoint(checkpoint, artifact, CompileOptions(
                max_model_len=rows + 1, max_num_seqs=1, max_num_batched_tokens=rows, suffix_mode=mode,
                bucket_policy="explicit", buckets=(f"encoder={rows}",)), lambda _: None)
            runtimes.append(load(artifact))
            limits.append(Limits.read(artifact))
        steps = [prompt_step(limit, rows) for limit in limits]
        off, compact = medians([lambda r=r, s=s: r.step(*s)  # type: ignore[misc]
                                for r, s in zip(runtimes, steps, strict=True)], repeat)
        shares = {mode: _shares(runtime) for mode, runtime in zip(MODES, runtimes, strict=True)}
        for runtime in runtimes:
            runtime.close()
    return SuffixResult(config, rows, limits[1].suffix_keep_tokens, off, compact, compact / off, shares)


def prompt_step(limits: Limits, rows: int) -> tuple[Any, Any, Any]:
    """The inputs of a step that runs a whole prompt in slot 0."""
    prompt = [(i * 7) % limits.vocab_size for i in range(rows)]
    return step_rows([Part(ActiveRequest(Request(prompt, 1), 0, 0), rows)], limits)


def _shares(runtime: Runtime) -> dict[str, float]:
    newest = runtime.records()[-3:]
    total = sum(record.us for record in newest)
    return {record.method: record.us / total for record in newest}
