"""Laws that every op keeps: a row's bits come from that row alone; fakes describe the real outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def outputs(result: Any) -> tuple[torch.Tensor, ...]:
    """The tensors an op returned, as a tuple."""
    return () if result is None else tuple(result) if isinstance(result, tuple | list) else (result,)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's storage bits as integers, so that NaN equals NaN and -0 differs from 0."""
    return tensor.contiguous().view(_BITS[tensor.element_size()])


def assert_same_bits(got: torch.Tensor, want: torch.Tensor, what: str) -> None:
    assert got.dtype == want.dtype and got.shape == want.shape, f"{what}: {got.dtype}{list(got.shape)}"
    wrong = (bits(got) != bits(want)).nonzero()
    if len(wrong):
        at = tuple(wrong[0].tolist())
        raise AssertionError(f"{what}: {len(wrong)} elements differ, first at {at}: {got[at]} and {want[at]}")


def relative_error(got: torch.Tensor, want: torch.Tensor) -> float:
    """L2 norm of the difference over the L2 norm of `want`, in float64."""
    got, want = got.double(), want.double()
    norm = want.norm().item()
    difference = (got - want).norm().item()
    return difference if norm == 0 else difference / norm


def pad_like(argument: torch.Tensor) -> torch.Tensor:
    """One pad row for a row argument: NaN where the type has one, else zero."""
    return torch.full_like(argument[:1], float("nan") if argument.is_floating_point() else 0)


def assert_row_invariant(
    call: Callable[..., Any], rows: Sequence[torch.Tensor], *,
    pads: Sequence[torch.Tensor] | None = None, seed: int = 0,
) -> None:
    """`call(*rows)` gives each row the same bits alone, reordered, repeated, in part, and beside pad rows.

    Every tensor of `rows` and every output carries rows in dimension 0. `pads` gives one pad row per
    argument (default: `pad_like`). A call that keeps state or needs a row table consistent with the batch
    must restore or rebuild it inside `call`.
    """
    pads = [pad_like(a) for a in rows] if pads is None else list(pads)
    whole = outputs(call(*rows))
    for name, index in arrangements(rows[0].shape[0], seed):
        batch = [torch.cat([a, pad])[index] for a, pad in zip(rows, pads, strict=True)]
        kept = index < rows[0].shape[0]
        for number, (got, want) in enumerate(zip(outputs(call(*batch)), whole, strict=True)):
            assert_same_bits(got[kept], want[index[kept]], f"output {number}, rows {name} {index.tolist()}")


def arrangements(count: int, seed: int) -> Iterator[tuple[str, torch.Tensor]]:
    """Batches as indices into the rows; index `count` stands for the pad row."""
    generator = torch.Generator().manual_seed(seed)
    yield "one after the other", torch.arange(count)
    for row in range(count):
        yield "alone", torch.tensor([row])
    yield "reversed", torch.arange(count - 1, -1, -1)
    yield "shuffled", torch.randperm(count, generator=generator)
    yield "repeated", torch.randint(count, (3 * count + 1,), generator=generator)
    yield "among pads", torch.randint(count + 1, (2 * count + 3,), generator=generator)
    yield "in front of pads", torch.cat([torch.arange(count), torch.full((5,), count)])
    yield "after a pad", torch.cat([torch.tensor([count]), torch.arange(count)])


def assert_fake_matches(fake: Callable[..., Any], call: Callable[..., Any], *arguments: Any) -> None:
    """`fake` gives the shapes, dtypes and strides that `call` returns."""
    pairs = zip(outputs(fake(*arguments)), outputs(call(*arguments)), strict=True)
    for number, (got, want) in enumerate(pairs):
        described = (got.shape, got.dtype, got.stride()), (want.shape, want.dtype, want.stride())
        assert described[0] == described[1], f"output {number}: fake {described[0]}, real {described[1]}"
