"""Request and Completion: what a caller asks for and gets back, and the checks before anything runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from dsv41c.runtime.limits import Limits
from dsv41c.runtime.plan.errors import Dsv41cError

MAX_SEED = 2**64 - 1


@dataclass(frozen=True)
class Request:
    """temperature 0 is greedy; top_p 1 draws from all ids. `arrival_step`: not scheduled before this step.

    `prompt_logprobs` asks for the log-probability of each prompt token behind the first. Such a request keeps every row
    of its prompt, so that its windows are whole: with a bounded suffix its tokens may differ from those without.
    """

    prompt_ids: Sequence[int]
    max_new_tokens: int
    _: KW_ONLY
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    ignore_eos: bool = False
    arrival_step: int = 0
    prompt_logprobs: bool = False

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0


@dataclass(frozen=True)
class Completion:
    """`tokens` ends with the EOS token when `finish_reason` is "stop".

    `logits`, kept on request: float32 `[len(tokens), vocabulary]`, row j the one that token j was taken from.
    `prompt_logprobs`, on request: natural logarithms, entry j that of prompt token j + 1 behind the ones before it.
    """

    prompt_ids: tuple[int, ...]
    tokens: tuple[int, ...]
    finish_reason: Literal["stop", "length"]
    logits: npt.NDArray[np.float32] | None
    prompt_logprobs: tuple[float, ...] | None = None


def check_request(request: Request, limits: Limits, name: str) -> None:
    """E0902 for the prompt, E0901 for the rest; `name` says which request it is."""
    _check_prompt(request.prompt_ids, limits, name)
    checks: list[tuple[str, object, bool, str]] = [
        ("max_new_tokens", request.max_new_tokens, _is_integer(request.max_new_tokens, 1, None), "an integer >= 1"),
        ("temperature", request.temperature, _is_real(request.temperature) and request.temperature >= 0,
         "a finite number >= 0"),
        ("top_p", request.top_p, _is_real(request.top_p) and 0 < request.top_p <= 1, "a number in (0, 1]"),
        ("seed", request.seed, _is_integer(request.seed, 0, MAX_SEED), f"an integer in 0..{MAX_SEED}"),
        ("ignore_eos", request.ignore_eos, isinstance(request.ignore_eos, bool), "true or false"),
        ("arrival_step", request.arrival_step, _is_integer(request.arrival_step, 0, None), "an integer >= 0"),
        ("prompt_logprobs", request.prompt_logprobs, isinstance(request.prompt_logprobs, bool), "true or false"),
    ]
    for field, found, holds, needed in checks:
        if not holds:
            raise Dsv41cError("DSV41C-E0901", f"{field} of {name}", found=repr(found), needed=needed,
                              do=f"pass a legal {field}")
    _check_planned(request, limits, name)


def _check_planned(request: Request, limits: Limits, name: str) -> None:
    left_out = limits.first_kept(len(request.prompt_ids))
    if request.prompt_logprobs and left_out > limits.full_decoder_rows:
        raise Dsv41cError("DSV41C-E0901", f"prompt_logprobs of {name}",
                          found=f"{left_out} rows of the prompt before the {limits.suffix_keep_tokens} that are kept",
                          needed=f"at most {limits.full_decoder_rows}, the full_decoder_rows of the artifact",
                          do=f"compile with --full-decoder-rows {left_out} or more, or shorten the prompt")


def _check_prompt(ids: Sequence[int], limits: Limits, name: str) -> None:
    if not ids:
        raise _bad_prompt(name, "no token ids", "at least one token id")
    for index, token in enumerate(ids):
        if not _is_integer(token, 0, limits.vocab_size - 1):
            raise _bad_prompt(f"{name}, id at index {index}", repr(token),
                              f"an integer in 0..{limits.vocab_size - 1} (the vocabulary)")
    if len(ids) >= limits.max_model_len:
        most = limits.max_model_len
        raise _bad_prompt(name, f"{len(ids)} token ids", f"at most {most - 1}, for one more fits max_model_len {most}")


def _bad_prompt(subject: str, found: str, needed: str) -> Dsv41cError:
    return Dsv41cError("DSV41C-E0902", f"prompt of {subject}", found=found, needed=needed, do="correct the prompt")


def _is_integer(value: object, low: int, high: int | None) -> bool:
    """Python and NumPy integers, but not booleans."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        return False
    return low <= int(value) and (high is None or int(value) <= high)


def _is_real(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond every float
        return False
