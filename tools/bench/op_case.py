"""A case of one op: arguments with live and pad rows, how close its results must be, and the rules of comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from dsv41c.compiler.affine import product
from dsv41c.compiler.ops.catalog import OPS
from dsv41c.compiler.ops.rows import RowColumn, RowFlag
from dsv41c.compiler.ops.spec import OpSpec
from dsv41c.compiler.tensor_shape import TensorShape

NUM_SLOTS = 3
PAD_FLAGS = int(RowFlag.START | RowFlag.PAD)
FLOAT32_BOUND = 2e-6  # relative L2
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True)
class Case:
    """`row_args` carry rows in dimension 0. `exact`: the same bytes. `bound`: relative L2 error otherwise."""

    op: str
    name: str
    args: tuple[Any, ...]
    row_args: tuple[str, ...]
    exact: bool = False
    bound: float = FLOAT32_BOUND
    judge_pads: bool = False  # pad rows of the result are defined too

    @property
    def spec(self) -> OpSpec:
        return OPS[self.op]

    @property
    def names(self) -> list[str]:
        return [a.name for a in self.spec.parsed().arguments]

    def argument(self, name: str) -> Any:
        return self.args[self.names.index(name)]

    @property
    def rows(self) -> int:
        first = self.argument(self.row_args[0])
        return len(first[0] if isinstance(first, list) else first)

    def shapes(self) -> list[Any]:
        """The arguments as `cuda_source` takes them."""
        described: list[Any] = []
        for name, value in zip(self.names, self.args, strict=True):
            if isinstance(value, list):
                described.append([self._shape(name, member) for member in value])
            else:
                described.append(self._shape(name, value) if isinstance(value, Tensor) else value)
        return described

    def _shape(self, name: str, value: Tensor) -> TensorShape:
        """An argument may have several rows for each of the case."""
        sizes = tuple(value.shape)
        rows = product([len(value) // self.rows, "rows"]) if name in self.row_args else sizes[0]
        return TensorShape(value.dtype, (rows, *sizes[1:]) if sizes else ())

    def copied(self) -> list[Any]:
        """The arguments, tensors cloned: some of them are written."""
        return [a.clone() if isinstance(a, Tensor) else a for a in self.args]

    def live_of(self, result: Tensor) -> Tensor:
        """`live` of a result that has several rows for each of the case, or one for several."""
        several = len(result) // self.rows
        return self.live().repeat_interleave(several) if several else torch.ones(len(result), dtype=torch.bool)

    def live(self) -> Tensor:
        """Which rows of the results are compared."""
        if self.judge_pads or "rows" not in self.row_args:
            return torch.ones(self.rows, dtype=torch.bool)
        flags: Tensor = self.argument("rows")[:, RowColumn.FLAGS]
        return (flags & RowFlag.PAD) == 0

    def written(self, args: Sequence[Any]) -> list[Tensor]:
        """Those of `args` that the op writes."""
        return [args[self.names.index(name)] for name in self.spec.mutates]

    def with_pads(self, count: int) -> Case:
        """The case with more pad rows behind its rows, their data NaN or otherwise useless."""
        args = [_padded(n, a, count, self.rows) if n in self.row_args else a
                for n, a in zip(self.names, self.args, strict=True)]
        return replace(self, args=tuple(args))


def _padded(name: str, value: Any, count: int, of: int) -> Any:
    """With `count` pads behind its `of` rows, or as many times more as it has rows for each of them."""
    if isinstance(value, list):
        return [_padded(name, member, count, of) for member in value]
    count *= len(value) // of
    if name == "rows":
        rows = torch.tensor([_pad_row(value.shape[0] + i) for i in range(count)], dtype=torch.int32)
    elif name == "upload":
        rows = torch.tensor([[NUM_SLOTS, 0, 0, PAD_FLAGS, -1]] * count, dtype=torch.int32)
    elif value.is_floating_point():
        rows = torch.full((count, *value.shape[1:]), float("nan"), dtype=value.dtype)
    else:
        rows = torch.full((count, *value.shape[1:]), -1, dtype=value.dtype)
    return torch.cat((value, rows))


def _pad_row(index: int) -> list[int]:
    return [NUM_SLOTS, 0, 0, index, 1, 0, 0, PAD_FLAGS]


def results(result: Any) -> list[Tensor]:
    return [] if result is None else list(result) if isinstance(result, tuple | list) else [result]


def same_bits(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    kind = _BITS[a.element_size()]
    return torch.equal(a.contiguous().view(kind), b.contiguous().view(kind))


def error_of(got: Tensor, want: Tensor) -> float:
    """Relative L2 error of float32; for bfloat16 the worst distance in units of the last place."""
    a, b = got.double(), want.double()
    if got.dtype == torch.bfloat16:
        slack = 2.0**-7 * b.abs() + 1e-6 * b.abs().max()
        return float(((a - b).abs() / slack.clamp_min(1e-30)).max()) if b.numel() else 0.0
    return float((a - b).norm() / b.norm().clamp_min(1e-30))


def judge(case: Case, got: Sequence[Tensor], want: Sequence[Tensor]) -> tuple[float, str]:
    """The largest error over the results, and what is wrong with them ("" when nothing is)."""
    worst, wrong = 0.0, ""
    for number, (a, b) in enumerate(zip(got, want, strict=True)):
        if same_bits(a, b):
            continue
        if case.exact or not a.is_floating_point():
            differ = int((a != b).sum())
            return float("inf"), f"result {number}: {differ} of {a.numel()} elements differ"
        error = error_of(a, b)
        limit = 1.0 if a.dtype == torch.bfloat16 else case.bound
        worst = max(worst, error)
        if not error <= limit:
            wrong = f"result {number}: error {error:.3g}, at most {limit:.3g}"
    return worst, wrong


# --- data ------------------------------------------------


def normal(seed: int, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def integers(seed: int, low: int, high: int, *shape: int, dtype: torch.dtype = torch.int32) -> Tensor:
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def e4m3(seed: int, *shape: int) -> Tensor:
    return normal(seed, *shape).mul(64).clamp(-448, 448).to(torch.float8_e4m3fn)


def e8m0(seed: int, low: int, high: int, *shape: int) -> Tensor:
    """Scales 2^(code-127) with codes low..high-1."""
    return integers(seed, low, high, *shape, dtype=torch.uint8).view(torch.float8_e8m0fnu)


def row_table(*groups: tuple[int, int, int], flags: Sequence[int] = (), tokens: Sequence[int] = ()) -> Tensor:
    """Rows of groups (slot, first position, count); count 0 is a pad row. Flags by row, repeated as needed."""
    table: list[list[int]] = []
    for slot, start, count in groups:
        first = len(table)
        if count == 0:
            table.append(_pad_row(first))
        for t in range(start, start + count):
            i = len(table)
            flag = flags[i % len(flags)] if flags else 0
            token = tokens[i % len(tokens)] if tokens else 7 * i
            table.append([slot, t, start, first, count, token, 0, flag])
    return torch.tensor(table, dtype=torch.int32)


def page_table(seed: int, pages: int, unmapped: int = 0) -> Tensor:
    """int32 [NUM_SLOTS + 1, pages]: every slot has its own pages in random order, the last `unmapped` ones none."""
    trash = NUM_SLOTS * pages
    order = torch.randperm(trash, generator=torch.Generator().manual_seed(seed)).view(NUM_SLOTS, pages).int()
    table = torch.cat((order, torch.full((1, pages), trash, dtype=torch.int32)))
    if unmapped:
        table[:, pages - unmapped :] = trash
    return table


def nan_pads(x: Tensor, rows: Tensor) -> Tensor:
    """x with NaN on the pad rows."""
    pad = (rows[:, RowColumn.FLAGS] & RowFlag.PAD) != 0
    x[pad] = float("nan")
    return x
