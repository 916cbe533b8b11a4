"""`dsv41c compile`: a checkpoint directory goes in, an artifact directory comes out."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsv41c.tools.cli import compile_options as shared

if TYPE_CHECKING:
    from dsv41c.compiler.driver import Compiled
    from dsv41c.compiler.options import CompileOptions

_SHOWN = 10


def compile_command(
    checkpoint: Annotated[Path, typer.Argument(metavar="CKPT", help="Checkpoint in Hugging Face layout.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="ART", help="Directory to write; must not exist.")],
    max_model_len: shared.MaxModelLen = None,
    max_num_seqs: shared.MaxNumSeqs = 16,
    max_num_batched_tokens: Annotated[int, typer.Option(help="Most tokens of one step.")] = 512,
    block_size: shared.BlockSize = 128,
    dtype: shared.Dtype = "bfloat16",
    quantizers: shared.Quantizers = "fake",
    kv_cache_dtype: shared.KvCacheDtype = "auto",
    target: shared.Target = "cpu",
    batch_invariant: shared.BatchInvariant = "on",
    fallback: shared.Fallback = None,
    without: shared.Without = None,
    break_ops: shared.Breaks = None,
    weights: Annotated[str, typer.Option(help="packed, or map: leave the weights in the checkpoint, which "
                                         "`dsv41c run --weights` then needs.")] = "packed",
    bucket_policy: shared.BucketPolicy = "default",
    buckets: shared.Buckets = None,
    bucket_step: shared.BucketStep = None,
    histogram: shared.HistogramFile = None,
    max_graphs: shared.MaxGraphs = 48,
    max_eager_rows: shared.MaxEagerRows = 8192,
    plan_only: Annotated[bool, typer.Option("--plan-only", help="No weights: to inspect, not to run.")] = False,
    budget: Annotated[str | None, typer.Option(metavar="SIZE", help="Write nothing when the plan takes more bytes, as "
                                               "8GiB, beside the weights.")] = None,
    dump_dir: Annotated[Path | None, typer.Option(metavar="DIR", help="Also write the program as text before and after "
                                                  "each pass, and index.html that shows the differences.")] = None,
    suffix_mode: shared.SuffixMode = "off",
    suffix_keep_tokens: shared.SuffixKeepTokens = None,
    full_decoder_rows: shared.FullDecoderRows = 0,
    draft_len: shared.DraftLen = 0,
    as_json: shared.AsJson = False,
) -> None:
    """Compile a checkpoint to an artifact."""
    from dsv41c.compiler.measured_sizes import read_histogram, words_of
    from dsv41c.compiler.options import CompileOptions
    from dsv41c.tools.cli.byte_size import parse_bytes

    allowed = None if budget is None else parse_bytes("--budget", budget)
    options = CompileOptions(max_model_len=max_model_len, max_num_seqs=max_num_seqs,
                             max_num_batched_tokens=max_num_batched_tokens, block_size=block_size, dtype=dtype,
                             quantizers=quantizers, kv_cache_dtype=kv_cache_dtype, target=target,
                             batch_invariant=batch_invariant, fallback=tuple(fallback or ()),
                             without=tuple(without or ()), breaks=tuple(break_ops or ()), plan_only=plan_only,
                             weights=weights, suffix_mode=suffix_mode, suffix_keep_tokens=suffix_keep_tokens,
                             full_decoder_rows=full_decoder_rows, draft_len=draft_len,
                             bucket_policy=bucket_policy, buckets=tuple(buckets or ()), bucket_step=bucket_step,
                             histogram=() if histogram is None else words_of(read_histogram(histogram)),
                             max_graphs=max_graphs, max_eager_rows=max_eager_rows)
    start = time.perf_counter()
    compiled = _compile(checkpoint, output, options, dump_dir, allowed)
    result = _result(compiled, output, time.perf_counter() - start)
    if as_json:
        print(json.dumps(result, ensure_ascii=False))
    else:
        _print_summary(result, output)


def _print_summary(result: Mapping[str, Any], output: Path) -> None:
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
