"""`dsv41c run`: generates from prompts with an artifact."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsv41c.tools.cli.check import Verify

if TYPE_CHECKING:
    from dsv41c.runtime.load import DecisionRecord
    from dsv41c.runtime.requests import Completion
    from dsv41c.runtime.tokenizer import Tokenizer
    from dsv41c.tools.cli.prompts import PromptOptions


def run_command(
    artifact: Annotated[Path, typer.Argument(metavar="ART", help="Artifact directory.")],
    prompt: Annotated[str | None, typer.Option(help="Text; needs an artifact with a tokenizer.")] = None,
    prompt_ids: Annotated[str | None, typer.Option(metavar="1,2,3", help="Token ids.")] = None,
    prompts_file: Annotated[Path | None, typer.Option(help="JSON lines: a string, a list of ids, or an object with "
                                                      "prompt or prompt_ids and settings. One batch.")] = None,
    max_new_tokens: Annotated[int, typer.Option(help="Most tokens of each request.")] = 64,
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 0.0,
    top_p: Annotated[float, typer.Option(help="Draw from the likeliest ids that hold this probability.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Of the draws; the same for each request.")] = 0,
    ignore_eos: Annotated[bool, typer.Option("--ignore-eos", help="Go on after the end of sequence.")] = False,
    eager: Annotated[bool, typer.Option("--eager", help="Bind at the exact size even where a bucket fits.")] = False,
    verify: Annotated[Verify, typer.Option(help="full: check the digest of every file.")] = Verify.header,
    weights: Annotated[Path | None, typer.Option(metavar="DIR", help="Checkpoint of an artifact that maps its weights; "
                                                 "its bytes must be those that were compiled.")] = None,
    memory_budget: Annotated[str | None, typer.Option(metavar="SIZE", help="Refuse to load a plan that takes more "
                                                      "bytes, as 8GiB, beside the weights.")] = None,
    dump_logits: Annotated[Path | None, typer.Option(metavar="FILE.npz", help="Write float32 logits: array r{i} for "
                                                     "request i, one row for each returned token.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")] = False,
) -> None:
    """Generate text, or token ids where the artifact has no tokenizer."""
    from dsv41c.runtime.requests import Request
    from dsv41c.tools.cli.byte_size import parse_bytes
    from dsv41c.tools.cli.prompts import PromptOptions

    settings = Request((), max_new_tokens, temperature=temperature, top_p=top_p, seed=seed, ignore_eos=ignore_eos)
    options = PromptOptions(prompt, prompt_ids, prompts_file, settings)
    if dump_logits is not None:
        _check_writable(dump_logits)
    allowed = None if memory_budget is None else parse_bytes("--memory-budget", memory_budget)
    outcome = _run(artifact, options, _Modes(verify.value, weights, eager, dump_logits is not None, allowed))
    if dump_logits is not None:
        _write_logits(dump_logits, outcome.completions)
    if as_json:
        print(json.dumps(_result(outcome), ensure_ascii=False))
    else:
        _print_texts(outcome)


@dataclass(frozen=True)
class _Modes:
    verify: str
    weights: Path | None
    eager: bool
    keep_logits: bool
    memory_budget: int | None


@dataclass(frozen=True)
class _Outcome:
    completions: list[Completion]
    records: list[DecisionRecord]
    report: dict[str, Any]
    seconds: float
    tokenizer: Tokenizer | None

    def text(self, completion: Completion) -> str | None:
        return self.tokenizer.decode(completion.tokens) if self.tokenizer else None


def _run(artifact: Path, options: PromptOptions, modes: _Modes) -> _Outcome:
    """Prompts are checked before the artifact is loaded, so that a typing error costs nothing."""
    from dsv41c.runtime.limits import Limits
    from dsv41c.runtime.load import load
    from dsv41c.runtime.requests import check_request
    from dsv41c.runtime.tokenizer import Tokenizer, require
    from dsv41c.tools.cli.progress import counter
    from dsv41c.tools.cli.run_requests import run_by_engine, run_by_loop

    limits = Limits.read(artifact)
    tokenizer = Tokenizer.read(artifact, limits.eos_ids)
    placed = options.requests(lambda text: require(tokenizer, artifact).encode(text))
    for place, request in placed.items():
        check_request(request, limits, place)
    requests = list(placed.values())
    most = sum(r.max_new_tokens for r in requests)
    runtime = load(artifact, modes.verify, weights=modes.weights,
                   memory_budget=modes.memory_budget)  # type: ignore[arg-type]
    with runtime, counter("tokens", most) as on_token:
        start = time.perf_counter()
        if modes.eager or modes.keep_logits or any(r.arrival_step for r in requests):
            completions, records = run_by_loop(runtime, limits, requests, on_token, eager=modes.eager,
                                               keep_logits=modes.keep_logits)
        else:
            completions, records = run_by_engine(runtime, requests, on_token)
        return _Outcome(completions, records, runtime.report(), time.perf_counter() - start, tokenizer)


def _result(outcome: _Outcome) -> dict[str, Any]:
    requests = [{"prompt_ids": list(c.prompt_ids), "tokens": list(c.tokens), "text": outcome.text(c),
                 "finish_reason": c.finish_reason} for c in outcome.completions]
    steps = [{"method": r.method, "bucket": r.bucket, "rows": r.rows, "pad_rows": r.pad_rows, "mode": r.mode,
              "reason": r.reason, "us": r.us} for r in outcome.records]
    load = {name: outcome.report[name] for name in ("planned_bytes", "reserved_bytes", "seconds")}
    return {"schema_version": 1, "requests": requests, "steps": steps, "load": load}


def _print_texts(outcome: _Outcome) -> None:
    for completion in outcome.completions:
        text = outcome.text(completion)
        print(",".join(str(t) for t in completion.tokens) if text is None else text)
    tokens = sum(len(c.tokens) for c in outcome.completions)
    print(f"{len(outcome.completions)} requests, {tokens} tokens in {outcome.seconds:.3f} s, "
          f"load {outcome.report['seconds']:.3f} s\nsteps {summarise_steps(outcome.records)}", file=sys.stderr)


def summarise_steps(records: Sequence[DecisionRecord]) -> str:
    """`decode@1 x14 82 us` for each method, bucket and mode: how often, and the mean time."""
    spent: dict[str, list[float]] = {}
    for record in records:
        name = f"{record.method}@{record.bucket}{' eager' if record.eager else ''}"
        spent.setdefault(name, []).append(record.us)
    return ", ".join(f"{name} x{len(us)} {sum(us) / len(us):.0f} us" for name, us in spent.items())


def _check_writable(path: Path) -> None:
    """Before the work, so that its result is not lost to a path that cannot be written (E0606)."""
    from dsv41c.runtime.plan.errors import Dsv41cError

    found = "a directory" if path.is_dir() else None if path.parent.is_dir() else f"no directory {path.parent}"
    if found is None and not os.access(path.parent, os.W_OK):
        found = f"no permission to write in {path.parent}"
    if found is not None:
        raise Dsv41cError("DSV41C-E0606", "logits cannot be written", where=str(path), found=found,
                          needed="a file name in a writable directory", do="choose another --dump-logits")


def _write_logits(path: Path, completions: Sequence[Completion]) -> None:
    """The file appears under its name only when it is whole (E0606 when it cannot)."""
    import numpy as np

    from dsv41c.runtime.plan.errors import Dsv41cError

    temporary = path.with_name(f"{path.name}.tmp-{os.getpid()}")
    arrays = {f"r{index}": completion.logits for index, completion in enumerate(completions)}
    try:
        with temporary.open("wb") as handle:
            np.savez(handle, **arrays)
        temporary.replace(path)
    except OSError as error:
        raise Dsv41cError("DSV41C-E0606", "logits cannot be written", where=str(path), found=str(error),
                          needed="a writable directory with free space", do="choose another --dump-logits") from error
    finally:
        temporary.unlink(missing_ok=True)
