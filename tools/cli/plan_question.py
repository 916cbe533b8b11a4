"""What `dsv41c plan` is asked: options as given, and what is left to choose from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dsv41c.compiler.options import CompileOptions

ROW_BOUNDS = (128, 256, 512, 1024, 2048, 4096, 8192)  # candidates under a budget
FIRST_TIER = 4096  # and its doublings up to the model's limit, under a budget without --context-tiers


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


def check_policy(budget: int | None, policy: str) -> None:
    """E0901 for a bucket policy beside a budget: one of them chooses the buckets."""
    from dsv41c.runtime.plan.errors import Dsv41cError

    if budget is not None and policy != "default":
        raise Dsv41cError("DSV41C-E0901", "option --bucket-policy", found=f"{policy} with --budget",
                          needed="default: under a budget the buckets are chosen", do="leave one of them out")
