"""`dsv41c plan`: the bytes that a compilation would plan, by class and method, and what fits into a budget."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsv41c.tools.cli import plan_result

if TYPE_CHECKING:
    from dsv41c.compiler.options import CompileOptions

ROW_BOUNDS = (128, 256, 512, 1024, 2048, 4096, 8192)  # candidates under a budget
FIRST_TIER = 4096  # and its doublings up to the model's limit, under a budget without --context-tiers


def plan_command(
    checkpoint: Annotated[Path, typer.Argument(metavar="CKPT", help="Checkpoint; headers are enough.")],
    budget: Annotated[str | None, typer.Option(metavar="SIZE", help="Bytes for all but the weights, as 8GiB: choose "
                                               "what fits and costs least.")] = None,
    context_tiers: Annotated[str | None, typer.Option(metavar="8192,65536", help="Context lengths to choose from, "
                                                      "ascending: the largest that fits.")] = None,
    histogram: Annotated[Path | None, typer.Option(metavar="FILE", help="Rows of steps by method, as JSON.")] = None,
    max_model_len: Annotated[int | None, typer.Option(help="As for compile; with tiers, the least tier that covers "
                                                      "it.")] = None,
    max_num_seqs: Annotated[int, typer.Option(help="Most requests at a time.")] = 16,
    max_num_batched_tokens: Annotated[int | None, typer.Option(help="Most tokens of one step. Default: 512, or chosen "
                                                               "under a budget.")] = None,
    block_size: Annotated[int, typer.Option(help="Tokens of a page of the compressed cache.")] = 128,
    dtype: Annotated[str, typer.Option(help="float32 or bfloat16.")] = "bfloat16",
    quantizers: Annotated[str, typer.Option(help="off or fake.")] = "fake",
    target: Annotated[str, typer.Option(help="cpu, sm_90a or sm_100a.")] = "cpu",
    fallback: Annotated[list[str] | None, typer.Option(metavar="OP", help="As for compile; may be repeated.")] = None,
    without: Annotated[list[str] | None, typer.Option(metavar="PASS", help="As for compile; may be repeated.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")] = False,
) -> None:
    """Plan the memory of a checkpoint without compiling or reading weights; under a budget choose the options."""
    from dsv41c.compiler.options import CompileOptions
    from dsv41c.tools.cli.byte_size import parse_bytes
    from dsv41c.tools.cli.workload import read_histogram

    start = time.perf_counter()
    given = CompileOptions(max_model_len=max_model_len, max_num_seqs=max_num_seqs, block_size=block_size, dtype=dtype,
                           quantizers=quantizers, target=target, fallback=tuple(fallback or ()),
                           without=tuple(without or ()), plan_only=True)
    question = Question(given, max_num_batched_tokens, None if budget is None else parse_bytes("--budget", budget),
                        None if context_tiers is None else parse_tiers(context_tiers))
    result = _solve(checkpoint, question, read_histogram(histogram))
    result["seconds"] = round(time.perf_counter() - start, 3)
    print(json.dumps({"schema_version": 1, "path": str(checkpoint), **result}, ensure_ascii=False) if as_json
          else "\n".join(plan_result.lines(result)))


@dataclass(frozen=True)
class Question:
    """Options as given, and what is to be chosen: no row bound, a budget in bytes, context tiers."""

    options: CompileOptions
    max_rows: int | None
    budget: int | None
    tiers: tuple[int, ...] | None

    def context_tiers(self, limit: int) -> tuple[int, ...]:
        """Those to choose from for a model of that limit. E0901 for tiers that are wrong or do not cover the need."""
        from dsv41c.compiler.options import DEFAULT_MAX_MODEL_LEN
        from dsv41c.graphs.budget import check_tiers

        need = self.options.max_model_len
        if self.tiers is not None:
            check_tiers(self.tiers, need, limit)
            return self.tiers if need is None else (min(t for t in self.tiers if t >= need),)
        if need is not None:
            return (need,)
        if self.budget is None:
            return (min(limit, DEFAULT_MAX_MODEL_LEN),)
        doublings = (FIRST_TIER << n for n in range(limit.bit_length()))
        return (*(t for t in doublings if t < limit), limit)

    def row_bounds(self) -> tuple[int, ...]:
        if self.max_rows is not None:
            return (self.max_rows,)
        least = self.options.max_num_seqs
        if self.budget is None:
            return (max(least, type(self.options).max_num_batched_tokens),)
        return tuple(r for r in ROW_BOUNDS if r >= least) or (least,)


def parse_tiers(text: str) -> tuple[int, ...]:
    """`8192,65536`; E0901 for what is no number."""
    from dsv41c.graphs.budget import bad_tiers

    pieces = [piece.strip() for piece in text.split(",")]
    for piece in pieces:
        if not (piece.isascii() and piece.removeprefix("-").isdecimal() and len(piece) < 12):
            raise bad_tiers(repr(piece), "numbers of tokens separated by commas", "8192")
    return tuple(map(int, pieces))


def _solve(checkpoint: Path, question: Question, histogram: Mapping[str, Mapping[int, int]]) -> dict[str, Any]:
    from dataclasses import replace

    from dsv41c.compiler.checkpoint.view import CheckpointView
    from dsv41c.compiler.driver import fuse
    from dsv41c.compiler.planning import Planner
    from dsv41c.graphs.budget import solve
    from dsv41c.tools.cli.progress import phases

    view = CheckpointView.open(checkpoint)
    tiers, bounds = question.context_tiers(view.config.max_position_embeddings), question.row_bounds()
    options = replace(question.options, max_model_len=tiers[0], max_num_batched_tokens=bounds[0])
    with phases() as progress:
        planner = Planner(fuse(view, options, progress))
        progress("planning memory")
        choice = solve(planner.space(tiers, bounds), histogram, question.budget)
        table = [{"max_model_len": tier, "total_bytes": plan_result.total_bytes(planner.plan(tier, choice.max_rows))}
                 for tier in tiers] if question.tiers and len(tiers) > 1 else []
    return plan_result.result(planner, choice, question.budget, table)
