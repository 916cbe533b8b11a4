"""Schedules of steps over slots, and the law that a schedule shows neither in outputs nor in state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from hypothesis import strategies as st
from torch import Tensor

from dsv41c.compiler.ops.catalog import OPS
from dsv41c.compiler.ops.native import native_call
from dsv41c.compiler.ops.rows import Row, RowColumn, RowFlag
from tests.unit.compiler.ops.row_laws import assert_same_bits, outputs, relative_error

NUM_SLOTS = 3
PAD_ROW = Row(NUM_SLOTS, 0, 0, 0, 1, 0, 0, RowFlag.START | RowFlag.PAD)


class Chunk(NamedTuple):
    """Consecutive positions of one slot in one step; count 0 stands for a pad row."""

    slot: int
    start: int
    count: int


Step = tuple[Chunk, ...]
PAD = Chunk(NUM_SLOTS, 0, 0)


@st.composite
def schedules(draw: st.DrawFn, lengths: Sequence[int]) -> list[Step]:
    """Steps that bring every slot to its length: any cuts, any order of slots, pads anywhere."""
    done = [0] * len(lengths)
    steps: list[Step] = []
    while done != list(lengths):
        step: list[Chunk] = []
        for slot in draw(st.permutations(range(len(lengths)))):
            rest = lengths[slot] - done[slot]
            count = rest - draw(st.integers(0, rest))  # simplest: everything at once
            if count:
                step.append(Chunk(slot, done[slot], count))
                done[slot] += count
            if draw(st.integers(0, 3)) == 3:
                step.append(PAD)
        if step:
            steps.append(tuple(step))
    return steps


def one_by_one(lengths: Sequence[int]) -> list[Step]:
    """Each slot in a step of its own: the plainest schedule."""
    return [(Chunk(slot, 0, length),) for slot, length in enumerate(lengths)]


def step_rows(step: Step, tokens: Sequence[Tensor] = (), flags: Sequence[Tensor] = ()) -> Tensor:
    """The step's row table; tokens and flags per slot and position where given."""
    table: list[Row] = []
    for slot, start, count in step:
        first = len(table)
        if count == 0:
            table.append(PAD_ROW._replace(first_row=first))
        for t in range(start, start + count):
            token, flag = (int(x[slot][t]) if x else 0 for x in (tokens, flags))
            table.append(Row(slot, t, start, first, count, token, 0, flag))
    return torch.tensor(table, dtype=torch.int32)


def gather(step: Step, values: Sequence[Tensor]) -> Tensor:
    """Rows of the step from per-slot values [n,...]; pad rows are NaN (zero where the type has none)."""
    fill = float("nan") if values[0].is_floating_point() else 0
    pad = torch.full_like(values[0][:1], fill)
    return torch.cat([values[c.slot][c.start : c.start + c.count] if c.count else pad for c in step])


def run_schedule(
    steps: Sequence[Step],
    call: Callable[..., Any],
    values: Sequence[Sequence[Tensor]],
    state: Sequence[Tensor],
    tokens: Sequence[Tensor] = (),
    flags: Sequence[Tensor] = (),
) -> tuple[list[dict[tuple[int, int], Tensor]], list[Tensor]]:
    """`call(rows, *step values, *state)` over the steps -> outputs by (slot, position), and the end state."""
    held = [s.clone() for s in state]
    seen: list[dict[tuple[int, int], Tensor]] = []
    for step in steps:
        rows = step_rows(step, tokens, flags)
        results = outputs(call(rows, *(gather(step, v) for v in values), *held))
        seen = seen or [{} for _ in results]
        for known, result in zip(seen, results, strict=True):
            for row, value in zip(rows.tolist(), result, strict=True):
                if not row[RowColumn.FLAGS] & RowFlag.PAD:
                    known[row[RowColumn.SLOT], row[RowColumn.POSITION]] = value
    return seen, held


def assert_schedule_invariant(
    steps: Sequence[Step],
    lengths: Sequence[int],
    call: Callable[..., Any],
    values: Sequence[Sequence[Tensor]],
    state: Sequence[Tensor],
    tokens: Sequence[Tensor] = (),
    flags: Sequence[Tensor] = (),
) -> None:
    """Same bits for every row and byte of state as with one slot after the other; trash untouched."""
    want, want_state = run_schedule(one_by_one(lengths), call, values, state, tokens, flags)
    got, got_state = run_schedule(steps, call, values, state, tokens, flags)
    for number, (a, b) in enumerate(zip(got, want, strict=True)):
        assert a.keys() == b.keys()
        for key in a:
            assert_same_bits(a[key], b[key], f"output {number} of slot, position {key}")
    for number, (a, b, before) in enumerate(zip(got_state, want_state, state, strict=True)):
        assert_same_bits(a, b, f"state {number}")
        assert_same_bits(a[-1], before[-1], f"trash of state {number}")


def bodies(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The op's native body and its torch reference."""
    return native_call(OPS[name]), OPS[name].reference


def assert_close(got: Tensor, want: Tensor) -> None:
    """Float32 to 2e-6 in relative L2 norm, bfloat16 to one unit in the last place, integers exactly."""
    assert got.dtype == want.dtype and got.shape == want.shape
    if got.dtype == torch.float32:
        assert relative_error(got, want) <= 2e-6
    elif got.dtype == torch.bfloat16:
        slack = 2.0**-7 * want.float().abs() + 1e-6 * want.float().abs().max()
        assert ((got.float() - want.float()).abs() <= slack).all()
    else:
        assert torch.equal(got, want)


def normal(seed: int, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)
