"""index_query: rotary and cast of the query beside the weights of its heads, found through the scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from dsv41c.passes.fuse.index_query import IndexQuery
from tests.passes.fuse.small_programs import (
    NUMERICS,
    OPS,
    drawn,
    fused,
    page_table,
    pool,
    refusals,
    rotary_table,
    row_table,
)

HEADS, DIM, WIDTH, TOPK = 4, 32, 64, 3


def tensors(dtype: torch.dtype) -> dict[str, Tensor]:
    return {"latent": drawn(5, HEADS * DIM, dtype=dtype), "x": drawn(5, WIDTH, dtype=dtype),
            "proj": drawn(HEADS, WIDTH, dtype=torch.bfloat16), "rows": row_table((0, 6, 3), (1, 9, 1), pads=1),
            "table": rotary_table(16), "page_table": page_table(),
            "keys": drawn(*pool(DIM, 4, dtype).shape, dtype=dtype), "blocks": torch.zeros(5, 2, dtype=torch.int32)}


def selection(kind: str, cast: bool, ratio: int = 1, inverse: bool = False, beside: bool = True,
              escape: bool = False) -> Callable[..., Any]:
    def body(latent: Tensor, x: Tensor, proj: Tensor, rows: Tensor, table: Tensor, page_table: Tensor, keys: Tensor,
             blocks: Tensor) -> Any:
        turned = OPS.rotary(latent.view(-1, HEADS, DIM), rows, table, ratio, inverse)
        query = OPS.quantize_fp4_index(turned) if cast else turned
        gate = OPS.linear(x, proj, None, torch.float32)
        scored = (query, gate if beside else OPS.combine_experts(gate, gate, torch.float32), keys, page_table, rows)
        extra = turned if escape else None
        if kind == "index_topk_within":
            return OPS.index_topk_within(*scored, blocks, TOPK, 1, 0.5, 4), extra
        if kind == "index_topk_blocks":
            return *OPS.index_topk_blocks(*scored, TOPK, 1, 0.5, 4, 2), extra
        return OPS.index_topk(*scored, TOPK, 1, 0.5), extra

    return body


@pytest.mark.parametrize("kind", ["index_topk", "index_topk_blocks", "index_topk_within"])
@pytest.mark.parametrize(("dtype", "cast"), NUMERICS)
def test_query_and_weights_become_one_call(kind: str, dtype: torch.dtype, cast: bool) -> None:
    fused(IndexQuery(), selection(kind, cast), tensors(dtype), ["index_query", kind])


@pytest.mark.parametrize(("options", "reason"), [
    ({"ratio": 2}, "argument 3 of %rotary is 2, not 1"),
    ({"inverse": True}, "argument 4 of %rotary is True, not False"),
    ({"beside": False}, "no reader of %quantize_fp4_index has an operand that is a call of linear"),
    ({"escape": True}, "%rotary inside is read by %output outside"),
])
def test_near_misses(options: dict[str, Any], reason: str) -> None:
    """A key's rotary, an inverse one, weights that are changed on the way to the scores, a query that escapes."""
    (found,) = refusals(IndexQuery(), selection("index_topk", True, **options), tensors(torch.float32))
    assert found == reason


def test_an_index_key_is_no_query() -> None:
    """Rotated and cast alike, but stored: nothing that reads it reads a product as well."""
    def body(latent: Tensor, x: Tensor, proj: Tensor, rows: Tensor, table: Tensor, page_table: Tensor,
             keys: Tensor) -> Any:
        key = OPS.quantize_fp4_index(OPS.rotary(latent, rows, table, 1, False))
        OPS.entry_store(key, rows, page_table, keys, 1)
        return OPS.linear(x, proj, None, torch.float32)

    (found,) = refusals(IndexQuery(), body, tensors(torch.float32) | {"latent": drawn(5, DIM)})
    assert found == "no reader of %quantize_fp4_index has an operand that is a call of linear"
