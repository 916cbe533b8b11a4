"""`dsv41c check`: loads an artifact, looks for weights that are no numbers, repeats its self-test."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from dsv41c.compiler.artifact_weights import WeightSource
    from dsv41c.compiler.stepwise import StepComparison
    from dsv41c.runtime.limits import Limits
    from dsv41c.runtime.load import Runtime
    from dsv41c.runtime.plan.schema import Plan


class Verify(StrEnum):
    """What loading checks: sizes and the digests of what is parsed, or the digest of every file."""

    header = "header"
    full = "full"


def check_command(
    artifact: Annotated[Path, typer.Argument(metavar="ART", help="Artifact directory.")],
    reference: Annotated[bool, typer.Option("--reference", help="Also compare every launch with its reference, and "
                                            "every step with the plan run in Python. Slow.")] = False,
    verify: Annotated[Verify, typer.Option(help="full: the digest of every file.")] = Verify.header,
    weights: Annotated[Path | None, typer.Option(metavar="DIR", help="Checkpoint of an artifact that maps its "
                                                 "weights.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")] = False,
) -> None:
    """Check an artifact on this machine: exit code 4 when it does not compute what it should."""
    start = time.perf_counter()
    result = check(artifact, weights, reference, verify.value)
    result["seconds"] = round(time.perf_counter() - start, 3)
    if as_json:
        print(json.dumps({"schema_version": 1, "path": str(artifact), "verify": verify.value, **result}))
        return
    tests = result["self_test"]
    print(f"weights    {result['weights']['tensors']} tensors, {result['weights']['bytes']:,} bytes, all numbers")
    print(f"self-test  {tests['prompts']} prompts, {tests['tokens']} tokens as recorded" if tests["prompts"]
          else "self-test  none in this artifact")
    if compared := result["reference"]:
        print(f"reference  {compared['steps']} steps equal bit by bit, {compared['launches']} launches within the "
              f"tolerance, the farthest at {compared['distance']:.1e}: {compared['launch']}")


def check(artifact: Path, weights: Path | None, reference: bool, verify: str) -> dict[str, Any]:
    """Figures of what was checked; the first thing that is wrong is raised."""
    from dsv41c.compiler.artifact_weights import WeightSource, check_numbers
    from dsv41c.runtime.limits import Limits
    from dsv41c.runtime.load import load
    from dsv41c.runtime.manifest import Manifest

    with load(artifact, verify, weights=weights) as runtime:  # type: ignore[arg-type]
        plan, limits = Manifest.read(artifact).read_plan(), Limits.read(artifact)
        _check_checks(plan, limits)
        read = check_numbers(WeightSource(artifact, weights), plan)
        _self_test(runtime, plan, limits)
    compared = _compare(WeightSource(artifact, weights), plan, limits) if reference else None
    return {
        "weights": {"tensors": len(plan.weights), "bytes": read},
        "self_test": {"prompts": len(plan.checks), "tokens": sum(len(c.tokens) for c in plan.checks)},
        "reference": compared,
    }


def _check_checks(plan: Plan, limits: Limits) -> None:
    """E0502 for a self-test that no compiler writes."""
    from dsv41c.runtime.plan.errors import Dsv41cError
    from dsv41c.runtime.requests import Request, check_request

    for index, check in enumerate(plan.checks):
        try:
            check_request(Request(check.prompt, len(check.tokens)), limits, f"checks[{index}]")
        except Dsv41cError as error:
            raise Dsv41cError("DSV41C-E0502", error.subject, where=f"$.checks[{index}]", found=error.found,
                              needed=error.needed, do="compile the artifact again") from error


def _self_test(executor: Runtime | StepComparison, plan: Plan, limits: Limits) -> None:
    """E0803 names the first token that is not the recorded one."""
    from dsv41c.runtime.generate import generate
    from dsv41c.runtime.plan.errors import Dsv41cError
    from dsv41c.runtime.requests import Request

    for index, check in enumerate(plan.checks):
        try:
            (completion,) = generate(executor, limits, [Request(check.prompt, len(check.tokens), ignore_eos=True)])
        except Dsv41cError as error:
            if error.code != "DSV41C-E0801":
                raise
            # The rows follow the manifest's options: a plan that refuses them was compiled with others.
            raise Dsv41cError("DSV41C-E0703", f"self-test {index}: {error.subject}", found=error.found,
                              needed=error.needed, do="compile the artifact again") from error
        if completion.tokens != check.tokens:
            first = _first_difference(completion.tokens, check.tokens)
            raise Dsv41cError("DSV41C-E0803", f"self-test {index}, token {first}",
                              found=f"tokens {list(completion.tokens)}", needed=f"tokens {list(check.tokens)}",
                              do="run `dsv41c check --reference` to find the launch")


def _first_difference(a: Sequence[int], b: Sequence[int]) -> int:
    pairs = zip(a, b, strict=False)
    return next((i for i, (x, y) in enumerate(pairs) if x != y), min(len(a), len(b)))


def _compare(source: WeightSource, plan: Plan, limits: Limits) -> dict[str, Any]:
    """The self-test again, on a fresh executor and the references side by side."""
    from dsv41c.compiler.stepwise import LaunchComparison, StepComparison
    from dsv41c.runtime.load import load
    from dsv41c.runtime.plan.errors import Dsv41cError

    if plan.target != "cpu":
        raise Dsv41cError("DSV41C-E0901", "option --reference", found=f"an artifact for {plan.target}",
                          needed="an artifact for the cpu, whose bits the references can follow",
                          do="leave --reference out, or compile with --target cpu")
    with load(source.artifact, weights=source.checkpoint) as runtime:
        both = StepComparison(runtime, LaunchComparison(plan, dict(source.read(plan))))
        _self_test(both, plan, limits)
        launches = both.reference
        return {"steps": both.steps, "launches": launches.launches, "distance": launches.worst.distance,
                "launch": launches.worst.launch}
