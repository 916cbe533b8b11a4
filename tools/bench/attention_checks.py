"""Correctness and time of mega_attention on a device; the reference is the composition on the CPU in float32."""

from __future__ import annotations

import torch

from dsv41c.compiler.ops.catalog import OPS
from dsv41c.tools.bench import inputs
from dsv41c.tools.bench.comparing import require
from dsv41c.tools.bench.launching import Case

WINDOW, SCALE = 128, 512**-0.5
ERROR = 4e-3  # relative L2 of a row: weights and result are rounded to bfloat16
CAST_ERROR = 4e-2  # some values then fall to the neighbouring e4m3 code
COMPARED = 8  # rows at each end; the reference walks keys one by one


def check(case: Case, rows: int, heads: int, selected: int, cast: bool) -> dict[str, float]:
    """Decode groups of 4 rows, then chunks longer than the ring."""
    worst = 0.0
    for group in (4, 200):
        state = inputs.attention_state(slots=(rows + group - 1) // group)
        tensors = inputs.mega_attention(rows, heads, selected, state, group, holes=True)
        pads = (tensors[-3][:, 7] & inputs.PAD) != 0
        tensors[0][pads], tensors[1][pads] = float("nan"), float("nan")
        before = [t.cpu().clone() for t in tensors]
        case.run(tensors, rows)
        worst = max(worst, _compare(tensors, before, selected, cast))
        OPS["window_commit"].reference(before[1], before[-3], before[2])
        require(torch.equal(tensors[2].cpu(), before[2]), f"ring behind groups of {group} differs")
        if cast:
            live = tensors[-1][~pads].cpu()
            require(torch.equal(OPS["quantize_fp8"].reference(live), live), "results off the grid of the cast")
    return {"row": worst}


def _compare(tensors: list[torch.Tensor], before: list[torch.Tensor], selected: int, cast: bool) -> float:
    rows, worst = before[0].shape[0], 0.0
    for i in sorted({*range(min(COMPARED, rows)), *range(max(rows - COMPARED, 0), rows)}):
        if before[-3][i, 7] & inputs.PAD:
            continue
        wanted, found = _row(before, i, selected).double(), tensors[-1][i].cpu().double()
        if not wanted.any():
            require(not found.any(), f"row {i} has no key and is not zero")
            continue
        error = float((found - wanted).norm() / wanted.norm())
        require(error <= (CAST_ERROR if cast else ERROR), f"row {i}: relative L2 {error:.2e}")
        worst = max(worst, error)
    return worst


def _row(given: list[torch.Tensor], i: int, selected: int) -> torch.Tensor:
    """One row by the primitives; float32 query, so that only the kernel rounds."""
    rows, table, sink = given[-3][i : i + 1], given[-2], given[-4]
    q = OPS["rotary"].reference(given[0][i : i + 1], rows, table, 1, False).float()
    key, window = given[1].float(), given[2]
    if selected:
        o = OPS["sparse_attention"].reference(q, key, window, given[3], given[4], given[5][i : i + 1], sink, rows,
                                              WINDOW, 1, SCALE)
    else:
        o = OPS["window_attention"].reference(q, key, window, sink, rows, WINDOW, SCALE)
    return OPS["rotary"].reference(o, rows, table, 1, True)[0]
