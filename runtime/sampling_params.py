"""SamplingParams: what a caller asks of one generation; and its form in C."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_int32
from dataclasses import dataclass
from typing import Any

import numpy as np

from dsv41c.runtime.c_api import GenerateParams, sized
from dsv41c.runtime.plan.errors import Dsv41cError

_IGNORE_EOS = 1


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """temperature 0 is greedy; top_p 1 and top_k 0 draw from all ids. Names are vLLM's where it has the idea.

    `n_logprobs` (at most 20): the log-probability of each token and those of so many likeliest ids. `priority`: lower
    ones first. `deadline_ms` counts from the submission, 0 is none. No id that ends the request is chosen before
    `min_new_tokens`.
    """

    max_new_tokens: int = 16
    min_new_tokens: int = 0
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    stop_ids: Sequence[int] = ()
    ignore_eos: bool = False
    n_logprobs: int = 0
    priority: int = 0
    deadline_ms: int = 0

    def in_c(self, prompt_ids: Sequence[int], name: str | None) -> GenerateParams:
        """E0901 and E0902 for what C's integers and numbers cannot hold; the engine checks the values."""
        prompt, stops = _ids("prompt", prompt_ids), _ids("stop_ids", self.stop_ids)
        params = sized(GenerateParams(
            tokens=prompt, n_tokens=len(prompt), temperature=_real("temperature", self.temperature),
            top_p=_real("top_p", self.top_p), stop_ids=stops, n_stop_ids=len(stops),
            flags=_IGNORE_EOS if self.ignore_eos else 0, id=None if name is None else name.encode()))
        for field, bits in (("max_new_tokens", 32), ("min_new_tokens", 32), ("n_logprobs", 32), ("priority", 32),
                            ("seed", 64), ("deadline_ms", 64), ("top_k", 31)):
            setattr(params, field, _integer(field, getattr(self, field), 2**bits - 1))
        return params  # type: ignore[no-any-return]


def _ids(field: str, ids: Sequence[int]) -> Any:
    code = "DSV41C-E0902" if field == "prompt" else "DSV41C-E0901"
    for index, value in enumerate(ids):
        if not _is_integer(value) or not -2**31 <= int(value) < 2**31:
            raise Dsv41cError(code, f"{field}, id at index {index}", found=repr(value),
                              needed="an integer in the vocabulary", do=f"correct {field}")
    return (c_int32 * len(ids))(*(int(i) for i in ids))


def _integer(field: str, value: object, most: int) -> int:
    if not _is_integer(value) or not 0 <= int(value) <= most:  # type: ignore[call-overload]
        raise _bad(field, value, f"an integer in 0..{most}")
    return int(value)  # type: ignore[call-overload, no-any-return]


def _real(field: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.floating)):
        raise _bad(field, value, "a number")
    try:
        return float(value)
    except OverflowError as error:
        raise _bad(field, value, "a finite number") from error


def _is_integer(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _bad(field: str, value: object, needed: str) -> Dsv41cError:
    return Dsv41cError("DSV41C-E0901", field, found=repr(value), needed=needed, do=f"pass a legal {field}")


