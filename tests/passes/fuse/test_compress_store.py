"""compress_store: KV entry and index key of a source layer, for ratio 1 and 2, with and without casts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from dsv41c.passes.fuse.compress_store import CompressStore
from tests.passes.fuse.small_programs import (
    NUMERICS,
    OPS,
    Tensors,
    drawn,
    fused,
    page_table,
    pool,
    refusals,
    rotary_table,
    row_table,
)

EPS, WIDTH, DIM, KEY = 1e-6, 64, 64, 32
# Steps of five rows: groups are cut in the middle, a slot pauses, a pad stands at the end.
STEPS = [row_table((0, 0, 3), (1, 0, 2)), row_table((1, 2, 1), (0, 3, 2), (2, 0, 1), pads=1), row_table((0, 5, 5)),
         row_table((2, 1, 3), (1, 3, 1), pads=1), row_table((0, 10, 1), (2, 4, 4))]


def tensors(ratio: int, dtype: torch.dtype) -> dict[str, Tensor]:
    return {
        "x": drawn(5, WIDTH, dtype=dtype), "rows": STEPS[0], "table": rotary_table(16), "page_table": page_table(),
        "wkv": drawn(DIM, WIDTH, dtype=torch.bfloat16), "wgate": drawn(DIM, WIDTH, dtype=torch.bfloat16, seed=1),
        "norm": drawn(DIM, dtype=torch.bfloat16), "wk": drawn(KEY, DIM, dtype=torch.bfloat16),
        "k_norm": drawn(KEY, dtype=torch.bfloat16), "pair": torch.zeros(4, 3, 2, DIM),
        "entries": pool(DIM, 4 // ratio, dtype), "keys": pool(KEY, 4 // ratio, dtype),
    }


def new_rows(step: int, given: Tensors) -> Tensors:
    return {"x": drawn(5, WIDTH, dtype=given["x"].dtype, seed=step), "rows": STEPS[step]}


def source_layer(ratio: int, dtype: torch.dtype, cast: bool) -> Callable[..., Any]:
    def body(x: Tensor, rows: Tensor, table: Tensor, page_table: Tensor, wkv: Tensor, wgate: Tensor, norm: Tensor,
             wk: Tensor, k_norm: Tensor, pair: Tensor, entries: Tensor, keys: Tensor) -> None:
        if ratio == 1:
            raw = OPS.linear(x, wkv, None, dtype)
        else:
            raw = OPS.compress_pairs(OPS.linear(x, wkv, None, torch.float32), OPS.linear(x, wgate, None, torch.float32),
                                     rows, pair, dtype)
        latent = OPS.rms_norm(raw, norm, EPS)
        entry = OPS.rotary(latent, rows, table, ratio, False)
        OPS.entry_store(OPS.quantize_fp4_kv(entry) if cast else entry, rows, page_table, entries, ratio)
        key = OPS.rms_norm(OPS.linear(latent, wk, None, dtype), k_norm, EPS)
        key = OPS.rotary(key, rows, table, ratio, False)
        OPS.entry_store(OPS.quantize_fp4_index(key) if cast else key, rows, page_table, keys, ratio)

    return body


@pytest.mark.parametrize("ratio", [1, 2])
@pytest.mark.parametrize(("dtype", "cast"), NUMERICS)
def test_each_cache_is_filled_by_one_call(ratio: int, dtype: torch.dtype, cast: bool) -> None:
    """Five steps: the pairs' ring carries an older half from step to step, pools and ring keep every bit."""
    first = "compress_store" if ratio == 1 else "compress_pairs_store"
    fused(CompressStore(), source_layer(ratio, dtype, cast), tensors(ratio, dtype), [first, "index_key_store"],
          new_rows, len(STEPS))


def test_the_steps_fill_both_caches() -> None:
    """The comparison above is about something: entries and keys of all slots, and the ring, are written."""
    given = tensors(2, torch.float32)
    body = source_layer(2, torch.float32, True)
    for i in range(len(STEPS)):
        given.update(new_rows(i, given))
        body(**given)
    complete = 11 // 2 + 4 // 2 + 8 // 2  # positions of the three slots, in pairs
    assert all(int((given[n].abs().sum(-1) > 0).sum()) == complete for n in ("entries", "keys"))
    assert given["pair"][:3].abs().sum(dim=(1, 2, 3)).all()
    assert not given["entries"][-1].any()


def entry(dtype: torch.dtype = torch.float32, ratio: int = 1, turn: int = 1, inverse: bool = False,
          between: Callable[..., Any] = lambda *_: None) -> Callable[..., Any]:
    """The entry's half with one thing changed; `between` sees the latent, the entry and the pool before the store."""
    def body(x: Tensor, rows: Tensor, table: Tensor, page_table: Tensor, wkv: Tensor, norm: Tensor, wk: Tensor,
             entries: Tensor) -> Any:
        latent = OPS.rms_norm(OPS.linear(x, wkv, None, dtype), norm, EPS)
        turned = OPS.quantize_fp4_kv(OPS.rotary(latent, rows, table, turn, inverse))
        extra = between(latent, turned, entries)
        OPS.entry_store(turned, rows, page_table, entries, ratio)
        return extra, OPS.linear(latent, wk, None, dtype)

    return body


def read(entries: Tensor) -> Tensor:
    return OPS.combine_experts(entries.view(-1, DIM), entries.view(-1, DIM), torch.float32)


@pytest.mark.parametrize(("body", "reason"), [
    (entry(inverse=True), "argument 4 of %rotary is True, not False"),
    (entry(turn=2), "argument 3 of %rotary is 2, not 1"),
    (entry(between=lambda latent, turned, _: OPS.quantize_fp8(turned)), "inside is read by %quantize_fp8 outside"),
    (entry(between=lambda latent, turned, entries: read(entries)), None),
    # The fused call would have to stand before the early reader of the latent.
    (entry(between=lambda latent, turned, entries: (OPS.quantize_fp8(latent), read(entries))),
     "%entry_store cannot pass %combine_experts: both use entries"),
], ids=["inverse", "ratio", "escape", "read before", "crossing"])
def test_near_misses(body: Callable[..., Any], reason: str | None) -> None:
    """Another rotary, another ratio, an entry that someone else reads, a store that would move before a read."""
    given = tensors(1, torch.float32)
    if reason is None:  # the read alone does not hinder: the call stays behind it
        fused(CompressStore(), body, given, ["combine_experts", "compress_store", "linear"])
        return
    (found,) = refusals(CompressStore(), body, given)
    assert reason in found


def test_a_gate_of_another_row_is_refused() -> None:
    """The two products of a pair must read the same rows."""
    def body(x: Tensor, rows: Tensor, table: Tensor, page_table: Tensor, wkv: Tensor, wgate: Tensor, norm: Tensor,
             pair: Tensor, entries: Tensor) -> None:
        kv = OPS.linear(x, wkv, None, torch.float32)
        gate = OPS.linear(OPS.quantize_fp8(x), wgate, None, torch.float32)
        latent = OPS.rms_norm(OPS.compress_pairs(kv, gate, rows, pair, torch.float32), norm, EPS)
        OPS.entry_store(OPS.rotary(latent, rows, table, 2, False), rows, page_table, entries, 2)

    (found,) = refusals(CompressStore(), body, tensors(2, torch.float32))
    assert found.startswith("argument 0 of %linear_1 is %quantize_fp8, elsewhere x is")
