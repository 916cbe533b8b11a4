"""`dsv41c compile`: a checkpoint directory goes in, an artifact directory comes out."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from dsv41c.compiler.driver import Compiled
    from dsv41c.compiler.options import CompileOptions

_SHOWN = 10


def compile_command(
    checkpoint: Annotated[Path, typer.Argument(metavar="CKPT", help="Checkpoint in Hugging Face layout.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="ART", help="Directory to write; must not exist.")],
    max_model_len: Annotated[int | None, typer.Option(help="Most tokens of a request, prompt and output together. "
                                                      "Default: the model's limit, at most 4096.")] = None,
    max_num_seqs: Annotated[int, typer.Option(help="Most requests at a time.")] = 16,
    max_num_batched_tokens: Annotated[int, typer.Option(help="Most tokens of one step.")] = 512,
    block_size: Annotated[int, typer.Option(help="Tokens of a page of the compressed cache.")] = 128,
    dtype: Annotated[str, typer.Option(help="float32 or bfloat16.")] = "bfloat16",
    quantizers: Annotated[str, typer.Option(help="off, or fake: round activations as the model does.")] = "fake",
    target: Annotated[str, typer.Option(help="cpu, sm_90a or sm_100a.")] = "cpu",
    fallback: Annotated[list[str] | None, typer.Option(metavar="OP", help="On a CUDA target, run this op through "
                                                           "ATen instead of its kernel; may be repeated.")] = None,
    without: Annotated[list[str] | None, typer.Option(metavar="PASS", help="Leave this pass out; may be repeated. "
                                                          "`dsv41c passes list` names them.")] = None,
    break_ops: Annotated[list[str] | None, typer.Option("--break", metavar="OP", help="End the graph at each launch of "
                         "this op, to look for what a graph hides; may be repeated. `dsv41c explain` names the ops of "
                         "a plan.")] = None,
    weights: Annotated[str, typer.Option(help="packed, or map: leave the weights in the checkpoint, which "
                                         "`dsv41c run --weights` then needs.")] = "packed",
    bucket_policy: Annotated[str, typer.Option(help="Which row counts get a graph: default, powers, step, explicit or "
                                               "histogram.")] = "default",
    buckets: Annotated[list[str] | None, typer.Option(metavar="METHOD=1,2,3", help="Policy explicit: the buckets of a "
                                                          "method; may be repeated.")] = None,
    bucket_step: Annotated[int | None, typer.Option(metavar="N", help="Policies powers (from 256 on) and step: rows "
                                                    "between buckets. Default: 128.")] = None,
    histogram: Annotated[Path | None, typer.Option(metavar="FILE", help="Policy histogram: measured sizes, JSON like "
                                                       '{"decode": {"1": 10, "2": 4}}.')] = None,
    max_graphs: Annotated[int, typer.Option(metavar="N", help="Most buckets of all methods together.")] = 48,
    plan_only: Annotated[bool, typer.Option("--plan-only", help="No weights: to inspect, not to run.")] = False,
    budget: Annotated[str | None, typer.Option(metavar="SIZE", help="Write nothing when the plan takes more bytes, as "
                                               "8GiB, beside the weights.")] = None,
    dump_dir: Annotated[Path | None, typer.Option(metavar="DIR", help="Also write the program as text before and after "
                                                  "each pass, and index.html that shows the differences.")] = None,
    suffix_mode: Annotated[str, typer.Option(metavar="off|mask|compact", help="Bounded replay: the decoder half runs "
                                             "on the last rows of a prompt (compact), or on all of them but sees only "
                                             "the last (mask, to compare with).")] = "off",
    suffix_keep_tokens: Annotated[int | None, typer.Option(metavar="K", help="Rows of a prompt that the decoder half "
                                                           "keeps; default: a window + 12.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")] = False,
) -> None:
    """Compile a checkpoint to an artifact."""
    from dsv41c.compiler.bucket_options import read_histogram
    from dsv41c.compiler.options import CompileOptions
    from dsv41c.tools.cli.byte_size import parse_bytes

    allowed = None if budget is None else parse_bytes("--budget", budget)
    options = CompileOptions(max_model_len=max_model_len, max_num_seqs=max_num_seqs,
                             max_num_batched_tokens=max_num_batched_tokens, block_size=block_size, dtype=dtype,
                             quantizers=quantizers, target=target, fallback=tuple(fallback or ()),
                             without=tuple(without or ()), breaks=tuple(break_ops or ()), plan_only=plan_only,
                             weights=weights, suffix_mode=suffix_mode, suffix_keep_tokens=suffix_keep_tokens,
                             bucket_policy=bucket_policy, buckets=tuple(buckets or ()), bucket_step=bucket_step,
                             histogram=() if histogram is None else read_histogram(histogram), max_graphs=max_graphs)
    start = time.perf_counter()
    compiled = _compile(checkpoint, output, options, dump_dir, allowed)
    result = _result(compiled, output, time.perf_counter() - start)
    if as_json:
        print(json.dumps(result, ensure_ascii=False))
        return
    launches = " ".join(f"{m['name']}={m['launches']}" for m in result["methods"])
    print(f"artifact {output}: plan {result['plan_bytes']} bytes, launches {launches}, "
          f"memory {result['memory']['total_bytes']} bytes, {result['seconds']:.1f} s", file=sys.stderr)
    for key, text in (("surplus", "tensors that the model does not read"),
                      ("stale", "copies in shards that the index does not choose")):
        if names := result[key]["first"]:
            print(f"note: {result[key]['count']} {text}: {', '.join(names)}", file=sys.stderr)


def _compile(checkpoint: Path, output: Path, options: CompileOptions, dump_dir: Path | None,
             budget: int | None) -> Compiled:
    """The dump is written too when the compilation fails behind the capture."""
    from dsv41c.compiler.driver import compile_checkpoint
    from dsv41c.compiler.pass_dump import PassDump
    from dsv41c.tools.cli.progress import phases

    dump = PassDump.to(dump_dir) if dump_dir is not None else None
    try:
        with phases() as progress:
            return compile_checkpoint(checkpoint, output, options, progress, dump, budget)
    finally:
        if dump is not None:
            dump.write()


def _result(compiled: Compiled, output: Path, seconds: float) -> dict[str, Any]:
    plan = compiled.plan
    methods = [{"name": m.name, "buckets": list(m.buckets), "ladder": vars(m.ladder),
                "launches": sum(len(s.launches) for s in m.steps)}
               for m in plan.methods]
    return {
        "schema_version": 1,
        "path": str(output),
        "plan_only": compiled.options.plan_only,
        "options": compiled.options.to_json(),
        "methods": methods,
        "memory": vars(plan.memory),
        "plan_bytes": (output / "plan.json").stat().st_size,
        "surplus": _first(compiled.view.surplus),
        "stale": _first(compiled.view.stale),
        "stale_copies": list(compiled.view.stale),
        "seconds": round(seconds, 3),
    }


def _first(names: Sequence[str]) -> dict[str, Any]:
    return {"count": len(names), "first": list(names[:_SHOWN])}
