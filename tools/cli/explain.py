"""`dsv41c explain`: what an artifact's plan does, counted; reads manifest and plan, loads nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer


def explain_command(
    artifact: Annotated[Path, typer.Argument(metavar="ART", help="Artifact directory.")],
    passes: Annotated[bool, typer.Option("--passes", help="Matches and refusals of every pass.")] = False,
    one_pass: Annotated[str | None, typer.Option("--pass", metavar="PASS", help="Every match of one pass.")] = None,
    why_not: Annotated[str | None, typer.Option("--why-not", metavar="PASS", help="Where a pass refused, by "
                                                "reason.")] = None,
    node: Annotated[str | None, typer.Option("--node", metavar="NAME", help="What the passes made of a call, or which "
                                             "pass made a launch and of what.")] = None,
    launches: Annotated[bool, typer.Option("--launches", help="Launches of one layer of each kind, and the layers that "
                                           "differ.")] = False,
    breaks: Annotated[bool, typer.Option("--breaks", help="Segments and breaks of each method, and the bridges that "
                                         "breaks write.")] = False,
    page: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write one page about the plan: methods, "
                                              "memory by class, maps of the arena.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")] = False,
) -> None:
    """Count launches, segments, breaks, kernels and memory of an artifact, or say what the passes did."""
    from dsv41c.runtime.manifest import Manifest
    from dsv41c.runtime.plan import break_facts
    from dsv41c.runtime.plan.explain import explain
    from dsv41c.runtime.plan.layer_launches import layer_launches, lines
    from dsv41c.tools.cli import explain_passes

    _check_one([passes, one_pass is not None, why_not is not None, node is not None, launches, breaks,
                page is not None])
    if page is not None:
        facts, text = _write_page(artifact, page)
    elif passes:
        facts, text = explain_passes.table(artifact)
    elif one_pass is not None:
        facts, text = explain_passes.one(artifact, one_pass)
    elif why_not is not None:
        facts, text = explain_passes.why_not(artifact, why_not)
    elif node is not None:
        facts, text = explain_passes.node(artifact, node)
    elif launches:
        facts = layer_launches(Manifest.read(artifact).read_plan())
        text = list(lines(facts))
    elif breaks:
        facts = break_facts.break_facts(Manifest.read(artifact).read_plan())
        text = list(break_facts.lines(facts))
    else:
        facts = explain(Manifest.read(artifact).read_plan())
        text = list(_lines(facts))
    if as_json:
        print(json.dumps({"schema_version": 1, "path": str(artifact), **facts}, ensure_ascii=False))
    else:
        print("\n".join(text))


def _check_one(chosen: list[bool]) -> None:
    from dsv41c.runtime.plan.errors import Dsv41cError

    if sum(chosen) > 1:
        raise Dsv41cError("DSV41C-E0901", "options of explain", found=f"{sum(chosen)} questions",
                          needed="one of --passes, --pass, --why-not, --node, --launches, --breaks and --html",
                          do="ask one at a time")


def _write_page(artifact: Path, target: Path) -> tuple[dict[str, Any], list[str]]:
    """The file appears under its name only when it is whole (E0606 when it cannot)."""
    from dsv41c.runtime.manifest import Manifest
    from dsv41c.runtime.plan.errors import Dsv41cError
    from dsv41c.runtime.plan.page import page

    data = page(Manifest.read(artifact).read_plan(), artifact.resolve().name).encode()
    temporary = target.with_name(f"{target.name}.tmp-{os.getpid()}")
    try:
        temporary.write_bytes(data)
        temporary.replace(target)
    except OSError as error:
        raise Dsv41cError("DSV41C-E0606", "the page cannot be written", where=str(target), found=str(error),
                          needed="a file name in a writable directory", do="choose another --html") from error
    finally:
        temporary.unlink(missing_ok=True)
    return {"html": str(target), "bytes": len(data)}, [f"page {target}: {len(data)} bytes"]


def _lines(facts: Mapping[str, Any]) -> Iterator[str]:
    yield f"target    {facts['target']}, requires {' '.join(facts['required_features']) or 'nothing'}"
    yield "memory    " + ", ".join(f"{name.removesuffix('_bytes')} {value:,} bytes"
                                   for name, value in facts["memory"].items())
    kernels = facts["kernels"]
    yield f"kernels   {kernels['total']}: {_counts(kernels['by_provider'])}"
    for flow in facts["flows"]:
        yield f"flow      {flow['name']}: {' > '.join(flow['methods'])} (requires {flow['requires']})"
    for method in facts["methods"]:
        yield from _method_lines(method)


def _method_lines(method: Mapping[str, Any]) -> Iterator[str]:
    from dsv41c.runtime.plan.explain import above_text

    yield ""
    yield (f"method    {method['name']}: {method['axis']} up to {method['max_rows']}, "
           f"arena {method['arena_bytes']:,} bytes, {method['peak_bytes']:,} alive at the peak")
    ladder = method["ladder"]
    yield (f"buckets   {' '.join(map(str, method['buckets']))} ({ladder['policy']}), above them {above_text(ladder)}; "
           f"model: {ladder['replay_ns']:,} ns a replay, {ladder['row_ns']:,} ns a row, "
           f"{ladder['eager_ns']:,} ns more eagerly")
    yield (f"steps     {method['segments']} segments, {len(method['breaks'])} breaks, {method['launches']} launches "
           f"({_counts(method['by_provider'])})")
    if method["kernel_runs"] != method["launches"]:  # there are sequences
        yield f"kernels   {method['kernel_runs']} run by the launches ({_counts(method['kernel_runs_by_provider'])})"
    for point in method["breaks"]:
        yield f"break     {point['op']}: {point['reason']} ({point['launches']} launches)"
    for kind, entry in method["by_layer_kind"].items():
        where = f"{entry['layers']} layers, " if entry["layers"] else ""
        yield f"layers    {kind}: {where}{entry['launches']} launches"
    for op, count in sorted(method["by_op"].items(), key=lambda item: (-item[1], item[0])):
        yield f"  {count:5}  {op.removeprefix('dsv41c::')}"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none"
