"""`dsv41c run`: generates from prompts with an artifact."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from dsv41c.tools.cli.check import Verify

if TYPE_CHECKING:
    from dsv41c.runtime.requests import Completion


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
    prompt_logprobs: Annotated[bool, typer.Option("--prompt-logprobs", help="With --json, the log-probability of each "
                                                  "prompt token; the artifact needs --full-decoder-rows where the "
                                                  "decoder leaves rows out.")] = False,
    draft_len: Annotated[int, typer.Option(metavar="k", help="Drafts of each request that a step verifies, up to the "
                                           "--draft-len of the artifact. Changes no token.")] = 0,
    draft_schedule: Annotated[str, typer.Option(metavar="static|confidence", help="static: always k drafts; "
                                                "confidence: as many as are likely enough to pay for their rows.")
                              ] = "static",
    eager: Annotated[bool, typer.Option("--eager", help="Bind at the exact size even where a bucket fits.")] = False,
    verify: Annotated[Verify, typer.Option(help="full: check the digest of every file.")] = Verify.header,
    weights: Annotated[Path | None, typer.Option(metavar="DIR", help="Checkpoint of an artifact that maps its weights; "
                                                 "its bytes must be those that were compiled.")] = None,
    memory_budget: Annotated[str | None, typer.Option(metavar="SIZE", help="Refuse to load a plan that takes more "
                                                      "bytes, as 8GiB, beside the weights.")] = None,
    dump_logits: Annotated[Path | None, typer.Option(metavar="FILE.npz", help="Write float32 logits: array r{i} for "
                                                     "request i, one row for each returned token.")] = None,
    trace: Annotated[Path | None, typer.Option(metavar="FILE.json", help="Write every method run as a trace event, "
                                               "for Perfetto or chrome://tracing; also when the run fails.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")] = False,
) -> None:
    """Generate text, or token ids where the artifact has no tokenizer."""
    from dsv41c.runtime.requests import Request
    from dsv41c.tools.cli.byte_size import parse_bytes
    from dsv41c.tools.cli.output_file import OutputFile
    from dsv41c.tools.cli.prompts import PromptOptions
    from dsv41c.tools.cli.run_requests import Modes, run_requests
    from dsv41c.tools.cli.run_result import print_texts, result

    settings = Request((), max_new_tokens, temperature=temperature, top_p=top_p, seed=seed, ignore_eos=ignore_eos,
                       prompt_logprobs=prompt_logprobs)
    options = PromptOptions(prompt, prompt_ids, prompts_file, settings)
    logits = None if dump_logits is None else OutputFile("logits", "--dump-logits", dump_logits)
    events = None if trace is None else OutputFile("the trace", "--trace", trace)
    for file in filter(None, (logits, events)):
        file.check_writable()
    allowed = None if memory_budget is None else parse_bytes("--memory-budget", memory_budget)
    outcome = run_requests(artifact, options, Modes(verify.value, weights, eager, logits is not None, allowed, events,
                                                  draft_len, draft_schedule))
    if logits is not None:
        logits.write(_fill_logits(outcome.completions))
    if as_json:
        print(json.dumps(result(outcome), ensure_ascii=False))
    else:
        print_texts(outcome)


def _fill_logits(completions: Sequence[Completion]) -> Callable[[BinaryIO], object]:
    import numpy as np

    arrays = {f"r{index}": completion.logits for index, completion in enumerate(completions)}
    return lambda handle: np.savez(handle, **arrays)
