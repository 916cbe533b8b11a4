"""take_tokens: the tokens that requests get from a step, as far as the drafts in it were right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dsv41c.runtime.limits import Limits
from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.runtime.sampling import draw_token, log_probabilities
from dsv41c.runtime.step_rows import ActiveRequest, Part


class Outputs(Protocol):
    def output(self, name: str) -> npt.NDArray[Any]: ...


@dataclass(frozen=True)
class Block:
    """What one request was given by a step: tokens of the first `kept` of its `num_rows` rows with logits."""

    active: ActiveRequest
    num_rows: int
    kept: int
    is_decode: bool


@dataclass(frozen=True)
class _Rows:
    """Results of all rows with logits: greedy int32 `[n]`, logits float32 `[n, vocabulary]` where they are needed."""

    greedy: npt.NDArray[np.int32]
    logits: npt.NDArray[np.float32] | None

    @classmethod
    def read(cls, executor: Outputs, count: int, needs_logits: bool) -> _Rows:
        greedy = executor.output("tokens")
        if greedy.dtype != np.int32 or greedy.shape != (count,):
            raise Dsv41cError("DSV41C-E0703", "output tokens", found=f"{greedy.dtype} {list(greedy.shape)}",
                              needed=f"int32 [{count}]", do="compile the artifact again")
        return cls(greedy, executor.output("logits") if needs_logits else None)

    def token(self, row: int, one: ActiveRequest, position: int) -> int:
        """The device's choice for a greedy request, a draw on the host for another."""
        request = one.request
        if self.logits is None or request.is_greedy:
            return int(self.greedy[row])
        return draw_token(self.logits[row], request.temperature, request.top_p, request.seed, position)


def take_tokens(executor: Outputs, parts: Sequence[Part], limits: Limits, keep_logits: bool) -> list[Block]:
    """Every row that was right moves its request forward, and the first token that no draft foresaw is its newest. The
    rows of a prompt whose log-probabilities are wanted score it."""
    count = sum(part.num_logit_rows for part in parts)
    rows = _Rows.read(executor, count, any(_needs_logits(part, keep_logits) for part in parts)) if count else None
    blocks: list[Block] = []
    end = 0
    for part in parts:
        one, num_rows = part.active, part.num_token_rows
        begin, end = end, end + part.num_logit_rows
        if part.scores_prompt:
            _score_prompt(rows, range(begin, end), one)
        one.position += part.count - num_rows
        if rows is None or not num_rows:
            continue
        is_decode = bool(one.tokens)
        kept = _take_block(rows, range(end - num_rows, end), one, limits, keep_logits)
        one.holds_newest = one.request.is_greedy and kept == num_rows
        one.position += kept
        one.drafts = []
        blocks.append(Block(one, num_rows, kept, is_decode))
    return blocks


def _needs_logits(part: Part, keep_logits: bool) -> bool:
    return part.scores_prompt or part.num_token_rows > 0 and (keep_logits or not part.active.request.is_greedy)


def _score_prompt(rows: _Rows | None, indices: range, one: ActiveRequest) -> None:
    """The last row of a prompt scores the first new token, which is none of the prompt's."""
    assert rows is not None and rows.logits is not None
    following = one.request.prompt_ids[one.position + 1 : one.position + 1 + len(indices)]
    one.prompt_logprobs += [float(log_probabilities(rows.logits[row])[token])
                            for row, token in zip(indices, following, strict=False)]


def _take_block(rows: _Rows, indices: range, one: ActiveRequest, limits: Limits, keep_logits: bool) -> int:
    """How many rows count: up to the first whose token is not the draft behind it, or ends the request."""
    for offset, row in enumerate(indices):
        token = rows.token(row, one, one.position + offset + 1)
        one.tokens.append(token)
        if rows.logits is not None and keep_logits:
            one.logits.append(np.array(rows.logits[row], dtype=np.float32))
        is_last = offset + 1 == len(indices)
        if is_last or token != one.drafts[offset] or one.finish_reason(limits):
            return offset + 1
    raise AssertionError("a block without rows")
