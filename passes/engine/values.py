"""Values of calls as texts: dtype and shape of what an op gives, evaluated once for equal arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

Texts = tuple[str, ...]
_MOST = 4096


class Evaluations:
    """`texts(function, args)`: dtypes and shapes of the results of `function`, which depend on those of `args` alone.

    The layers of a model call the same ops with the same shapes: each is evaluated once.
    """

    def __init__(self) -> None:
        self._known: dict[object, Texts] = {}

    def texts(self, function: Callable[..., Any], args: Sequence[Any]) -> Texts:
        """Raises what the function raises; a failure is not kept."""
        key = (function, tuple(_key(a) for a in args))
        if key not in self._known:
            if len(self._known) >= _MOST:
                self._known.clear()
            self._known[key] = texts_of(function(*args))
        return self._known[key]


def texts_of(value: Any) -> Texts:
    """Of a tensor, of each one of several, or of none."""
    values = () if value is None else value if isinstance(value, tuple | list) else (value,)
    return tuple(text_of(v) for v in values)


def text_of(value: torch.Tensor) -> str:
    """As text, because comparing symbols would specialise them."""
    return f"{str(value.dtype).removeprefix('torch.')} [{', '.join(str(s) for s in value.shape)}]"


def _key(argument: Any) -> object:
    if isinstance(argument, torch.Tensor):
        return text_of(argument)
    if isinstance(argument, list | tuple):
        return tuple(_key(a) for a in argument)
    return type(argument), argument
