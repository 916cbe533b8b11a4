"""Bounds on the rows of a step: how many each method can be given."""

from __future__ import annotations

from typing import Protocol

from dsv41c.runtime.plan.errors import Dsv41cError


class RowOptions(Protocol):
    """What is read of CompileOptions."""

    @property
    def max_num_seqs(self) -> int: ...
    @property
    def max_num_batched_tokens(self) -> int: ...
    @property
    def suffix_mode(self) -> str: ...
    @property
    def suffix_keep_tokens(self) -> int | None: ...
    @property
    def draft_len(self) -> int: ...


def kept_of_prompt(options: RowOptions) -> int | None:
    """Last rows of a prompt that the decoder runs on; None: all."""
    return options.suffix_keep_tokens if options.suffix_mode == "compact" else None


def method_bounds(options: RowOptions) -> dict[str, int]:
    """Most rows of each method, of the draft most groups. Of a compact decoder: of each request the kept end of its
    prompt. A request that verifies drafts has a row for each of them and one for the token before."""
    tokens, seqs = options.max_num_batched_tokens, options.max_num_seqs
    verified = min(seqs * (1 + options.draft_len), tokens)
    decoder = suffix_bound(tokens, seqs, kept_of_prompt(options), options.draft_len)
    bounds = {"decode": verified, "encoder": tokens, "decoder": decoder, "head": verified}
    return bounds | {"draft": seqs} if options.draft_len else bounds


def suffix_bound(max_num_batched_tokens: int, max_num_seqs: int, keep: int | None, draft_len: int) -> int:
    """Most kept rows of a step: each request keeps at most `keep` of its prompt's rows, or the 1 + `draft_len` rows of
    a decode or a verification; `keep` None keeps all. E0402 on a count that is no count."""
    counts = {"max_num_batched_tokens": (max_num_batched_tokens, 1), "max_num_seqs": (max_num_seqs, 1),
              "keep": (1 if keep is None else keep, 1), "draft_len": (draft_len, 0)}
    for name, (value, least) in counts.items():
        if value < least:
            raise Dsv41cError("DSV41C-E0402", "bound of the kept rows", found=f"{name} {value}",
                              needed=f"at least {least}", do=f"raise {name}")
    if keep is None:
        return max_num_batched_tokens
    return min(max_num_batched_tokens, max_num_seqs * max(keep, 1 + draft_len))
