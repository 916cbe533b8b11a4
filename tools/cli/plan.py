"""`dsv41c plan`: the bytes that a compilation would plan, by class and method, and what fits into a budget."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from dsv41c.tools.cli import compile_options as shared
from dsv41c.tools.cli import plan_result
from dsv41c.tools.cli.plan_question import Question, check_policy, parse_tiers


def plan_command(
    checkpoint: Annotated[Path, typer.Argument(metavar="CKPT", help="Checkpoint; headers are enough.")],
    budget: Annotated[str | None, typer.Option(metavar="SIZE", help="Bytes for all but the weights, as 8GiB: choose "
                                               "what fits and costs least.")] = None,
    context_tiers: Annotated[str | None, typer.Option(metavar="8192,65536", help="Context lengths to choose from, "
                                                      "ascending: the largest that fits; with "
                                                      "--max-model-len, the least that covers it.")] = None,
    histogram: shared.HistogramFile = None,
    max_model_len: shared.MaxModelLen = None,
    max_num_seqs: shared.MaxNumSeqs = 16,
    max_num_batched_tokens: Annotated[int | None, typer.Option(help="Most tokens of one step. Default: 512, or chosen "
                                                               "under a budget.")] = None,
    block_size: shared.BlockSize = 128,
    dtype: shared.Dtype = "bfloat16",
    quantizers: shared.Quantizers = "fake",
    kv_cache_dtype: shared.KvCacheDtype = "auto",
    target: shared.Target = "cpu",
    batch_invariant: shared.BatchInvariant = "on",
    fallback: shared.Fallback = None,
    without: shared.Without = None,
    break_ops: shared.Breaks = None,
    bucket_policy: shared.BucketPolicy = "default",
    buckets: shared.Buckets = None,
    bucket_step: shared.BucketStep = None,
    max_graphs: shared.MaxGraphs = 48,
    max_eager_rows: shared.MaxEagerRows = 8192,
    suffix_mode: shared.SuffixMode = "off",
    suffix_keep_tokens: shared.SuffixKeepTokens = None,
    full_decoder_rows: shared.FullDecoderRows = 0,
    draft_len: shared.DraftLen = 0,
    as_json: shared.AsJson = False,
) -> None:
    """Plan the memory of a checkpoint without compiling or reading weights; under a budget choose the options."""
    from dsv41c.compiler.measured_sizes import read_histogram, words_of
    from dsv41c.compiler.options import CompileOptions
    from dsv41c.tools.cli.byte_size import parse_bytes

    start = time.perf_counter()
    allowed = None if budget is None else parse_bytes("--budget", budget)
    check_policy(allowed, bucket_policy)
    sizes = None if histogram is None else read_histogram(histogram)
    given = CompileOptions(max_model_len=max_model_len, max_num_seqs=max_num_seqs, block_size=block_size, dtype=dtype,
                           quantizers=quantizers, kv_cache_dtype=kv_cache_dtype, target=target,
                           batch_invariant=batch_invariant, fallback=tuple(fallback or ()),
                           without=tuple(without or ()), breaks=tuple(break_ops or ()), plan_only=True,
                           suffix_mode=suffix_mode, suffix_keep_tokens=suffix_keep_tokens,
                           full_decoder_rows=full_decoder_rows, draft_len=draft_len,
                           bucket_policy=bucket_policy, buckets=tuple(buckets or ()), bucket_step=bucket_step,
                           histogram=words_of(sizes) if sizes and bucket_policy == "histogram" else (),
                           max_graphs=max_graphs, max_eager_rows=max_eager_rows)
    question = Question(given, max_num_batched_tokens, allowed,
                        None if context_tiers is None else parse_tiers(context_tiers))
    result = _solve(checkpoint, question, sizes)
    result["compile"] += ["--histogram", str(histogram)] if given.histogram else []
    result["seconds"] = round(time.perf_counter() - start, 3)
    print(json.dumps({"schema_version": 1, "path": str(checkpoint), **result}, ensure_ascii=False) if as_json
          else "\n".join(plan_result.lines(result)))


def _solve(checkpoint: Path, question: Question, sizes: dict[str, dict[int, int]] | None) -> dict[str, Any]:
    from dataclasses import replace

    from dsv41c.compiler.checkpoint.view import CheckpointView
    from dsv41c.compiler.driver import fuse
    from dsv41c.compiler.planning import Planner
    from dsv41c.graphs.budget import solve
    from dsv41c.tools.cli.progress import phases

    view = CheckpointView.open(checkpoint, draft=question.options.draft_len > 0)
    tiers, bounds = question.context_tiers(view.config.max_position_embeddings), question.row_bounds()
    options = replace(question.options, max_model_len=tiers[0], max_num_batched_tokens=bounds[0])
    with phases() as progress:
        planner = Planner(fuse(view, options, progress))
        progress("planning memory")
        choice = solve(planner.space(tiers, bounds), sizes or planner.default_workload(), question.budget)
        table = plan_result.tiers(planner, choice, tiers) if question.tiers and len(tiers) > 1 else []
    return plan_result.result(planner, choice, question.budget, table)
