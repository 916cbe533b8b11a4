"""The answer of `dsv41c plan` as plain data and as text."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dsv41c.compiler.options import CompileOptions
    from dsv41c.compiler.planning import Planner
    from dsv41c.graphs.budget import Choice
    from dsv41c.runtime.plan.schema import Method, Plan


def result(planner: Planner, choice: Choice, budget: int | None, table: list[dict[str, int]]) -> dict[str, Any]:
    from dsv41c.runtime.plan.explain import weight_bytes
    from dsv41c.runtime.plan.memory_classes import memory_by_class

    plan = planner.plan(choice.max_model_len, choice.max_rows)
    classes = memory_by_class(plan)
    graphs, classes["graphs"] = classes["graphs"], choice.total_bytes - sum(classes.values()) + classes["graphs"]
    options = planner.options(choice.max_model_len, choice.max_rows)
    dropped = graphs != classes["graphs"]
    return {
        "target": plan.target, "budget_bytes": budget, "total_bytes": choice.total_bytes,
        "reserved_bytes": choice.total_bytes - classes["graphs"], "weight_bytes": weight_bytes(plan),
        "classes": classes, "memory": vars(plan.memory),
        "methods": [_method(plan, m, choice.buckets[m.name]) for m in plan.methods],
        "tiers": table, "cost_ns": choice.cost_ns, "options": options.to_json(),
        "compile": compile_arguments(options, choice.buckets if dropped else {}),
    }


def _method(plan: Plan, method: Method, buckets: tuple[int, ...]) -> dict[str, Any]:
    from dsv41c.runtime.plan.arena_lives import peak_bytes
    from dsv41c.runtime.plan.memory_classes import graph_bytes

    bound = next(s.hi for s in plan.symbols if s.name == method.symbol)
    run_rows = method.run_rows(bound)
    return {"name": method.name, "max_rows": bound, "run_rows": run_rows, "arena_bytes": method.arena_bytes,
            "peak_bytes": peak_bytes(method, run_rows), "buckets": list(buckets),
            "graph_bytes": graph_bytes(plan, method) * len(buckets)}


def tiers(planner: Planner, choice: Choice, candidates: Sequence[int]) -> list[dict[str, int]]:
    """What each context tier would take with the rows and buckets that were chosen."""
    fixed = {tier: planner.candidate(tier, choice.max_rows).fixed_bytes for tier in candidates}
    graphs = choice.total_bytes - fixed[choice.max_model_len]
    return [{"max_model_len": tier, "total_bytes": size + graphs} for tier, size in fixed.items()]


def compile_arguments(options: CompileOptions, buckets: Mapping[str, tuple[int, ...]]) -> list[str]:
    """What `dsv41c compile` takes for this choice, complete but for the file of measured sizes: the sizes always,
    everything else where it differs from its default. `buckets`: those of each method, where they were chosen."""
    names = ("max_model_len", "max_num_seqs", "max_num_batched_tokens", "block_size", "dtype", "quantizers", "target")
    arguments = [word for name in names for word in (f"--{name.replace('_', '-')}", str(getattr(options, name)))]
    lists = {"--fallback": options.fallback, "--without": options.without, "--break": options.breaks}
    arguments += [word for option, words in lists.items() for each in words for word in (option, each)]
    if options.kv_cache_dtype != type(options).kv_cache_dtype:
        arguments += ["--kv-cache-dtype", options.kv_cache_dtype]
    if options.batch_invariant != type(options).batch_invariant:
        arguments += ["--batch-invariant", options.batch_invariant]
    if options.suffix_mode != "off":
        arguments += ["--suffix-mode", options.suffix_mode, "--suffix-keep-tokens", str(options.suffix_keep_tokens)]
    if options.full_decoder_rows:
        arguments += ["--full-decoder-rows", str(options.full_decoder_rows)]
    if options.max_eager_rows != type(options).max_eager_rows:
        arguments += ["--max-eager-rows", str(options.max_eager_rows)]
    arguments += ["--draft-len", str(options.draft_len)] if options.draft_len else []
    if options.max_graphs != type(options).max_graphs:
        arguments += ["--max-graphs", str(options.max_graphs)]
    policy = "explicit" if buckets else options.bucket_policy
    arguments += ["--bucket-policy", policy] if policy != "default" else []
    arguments += ["--bucket-step", str(options.bucket_step)] if options.bucket_step is not None else []
    chosen = [f"{name}={','.join(map(str, rungs))}" for name, rungs in buckets.items()] or options.buckets
    return arguments + [word for each in chosen for word in ("--buckets", each)]


def _of_run(method: Mapping[str, Any]) -> str:
    return f", {method['run_rows']} in one run" if method["run_rows"] < method["max_rows"] else ""


def lines(result: Mapping[str, Any]) -> Iterator[str]:
    yield f"target    {result['target']}"
    for name, size in result["classes"].items():
        if size:
            yield f"{name:12} {size:18,} bytes"
    for method in result["methods"]:
        yield (f"method    {method['name']}: up to {method['max_rows']} rows{_of_run(method)}, "
               f"arena {method['arena_bytes']:,} bytes ({method['peak_bytes']:,} alive at most), "
               f"{len(method['buckets'])} buckets")
    yield f"weights   {result['weight_bytes']:,} bytes, not part of the total"
    yield f"reserved  {result['reserved_bytes']:,} bytes by the executor"
    budget = result["budget_bytes"]
    yield f"total     {result['total_bytes']:,} bytes" + (f" of a budget of {budget:,}" if budget is not None else "")
    for tier in result["tiers"]:
        yield f"tier      {tier['max_model_len']} tokens: {tier['total_bytes']:,} bytes"
    if budget is not None:
        yield f"cost      {result['cost_ns'] / 1e9:.3f} s for the workload, expected"
    yield f"compile   dsv41c compile {shlex.join(result['compile'])}"
