"""`dsv41c bisect`: the first pass of an artifact's pipeline that changes what is computed, found on its self-test."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from dsv41c.compiler.bisect import Lockstep, Verdict


def bisect_command(
    artifact: Annotated[Path, typer.Argument(metavar="ART", help="Artifact directory.")],
    weights: Annotated[Path | None, typer.Option("--weights", "--checkpoint", metavar="DIR", help="Checkpoint of an "
                                                 "artifact that maps its weights.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")] = False,
) -> None:
    """Run the program after each pass in Python: exit code 4 when a pass changes a bit of output or state."""
    from dsv41c.runtime.plan.errors import MISMATCH

    start = time.perf_counter()
    verdict = bisect_artifact(artifact, weights)
    result = _result(verdict) | {"seconds": round(time.perf_counter() - start, 3)}
    print(json.dumps({"schema_version": 1, "path": str(artifact), **result}) if as_json else "\n".join(_lines(result)))
    raise typer.Exit(MISMATCH if verdict.first is not None else 0)


def bisect_artifact(artifact: Path, checkpoint: Path | None) -> Verdict:
    """The pipeline of this compiler without the passes that the artifact left out, on the artifact's weights."""
    from dsv41c.compiler.bisect import bisect
    from dsv41c.compiler.pass_driver import select
    from dsv41c.compiler.pipeline import PIPELINE
    from dsv41c.compiler.recapture import recapture
    from dsv41c.runtime.generate import generate
    from dsv41c.runtime.limits import Limits
    from dsv41c.runtime.requests import Request

    again, limits = recapture(artifact, checkpoint), Limits.read(artifact)

    def drive(executor: Lockstep) -> None:
        for check in again.checks:
            generate(executor, limits, [Request(check.prompt, len(check.tokens), ignore_eos=True)])

    without = again.options.without
    return bisect(again.program, select(PIPELINE, without), again.model, drive, without)


def _result(verdict: Verdict) -> dict[str, Any]:
    first: dict[str, Any] | None = None
    if verdict.difference is not None:
        found, site = verdict.difference, verdict.site
        first = {"pass": verdict.first, "step": found.step, "what": found.what, "index": list(found.mismatch.index),
                 "found": found.mismatch.found, "needed": found.mismatch.needed,
                 "method": site and site.method, "node": site and site.node,
                 "match": vars(site.match) if site and site.match else None}
    return {"equal": first is None, "first": first, "passes": [vars(p) for p in verdict.passes]}


def _lines(result: Mapping[str, Any]) -> Iterator[str]:
    for entry in result["passes"]:
        word = {True: "equal", False: "DIFFERS", None: "not run"}[entry["is_equal"]]
        how = f"{entry['steps']} steps" if entry["steps"] else "changes nothing" if entry["is_equal"] else ""
        yield f"{word:8} {entry['name']}: {entry['num_matches']} matches{how and ', '}{how}"
    first = result["first"]
    if first is None:
        yield "no pass changes a bit of logits, tokens or state"
        return
    yield (f"first    {first['pass']}: {first['what']} {first['index']} in step {first['step']} is {first['found']}, "
           f"not {first['needed']}")
    if first["node"]:
        yield f"node     %{first['node']} of method {first['method']} is the first value that differs"
    if match := first["match"]:
        yield f"rewrite  %{match['made']} replaces {', '.join('%' + name for name in match['replaced'])}"
