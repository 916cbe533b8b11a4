"""Cases of the draft's ops."""

from __future__ import annotations

import torch

from dsv41c.tools.bench.op_case import NUM_SLOTS, PAD_FLAGS, Case, integers, normal, row_table

F32, BF16 = torch.float32, torch.bfloat16
BLOCK, NOISE, GROUPS = 3, 95, 4


def small() -> list[Case]:
    return [_row_table(), *_chain(64, 8, 500), *_joined(), *_sums()]


def real() -> list[Case]:
    return _chain(5120, 256, 129280)


def _row_table() -> Case:
    upload = torch.tensor([[1, 0, 40, 0, -1], [0, 0, -1, 0, -1], [NUM_SLOTS, 0, 0, PAD_FLAGS, -1], [2, 0, 0, 0, -1]],
                          dtype=torch.int32)
    state = torch.tensor([3, 4, 5, 6]).int(), torch.tensor([9, 14, 30, 0]).int()
    return Case("draft_row_table", "mixed", (upload, *state, BLOCK, NOISE), ("upload",), True, judge_pads=True)


def _chain(hidden: int, rank: int, vocabulary: int) -> list[Case]:
    token = torch.tensor([[7], [0], [vocabulary], [-1]], dtype=torch.int32)
    weight, bigram = normal(1, vocabulary, rank, dtype=BF16), normal(2, GROUPS, rank, dtype=BF16)
    rows = row_table(*((slot, 5 * slot, BLOCK) for slot in range(NUM_SLOTS)))
    base, correction = normal(3, GROUPS * BLOCK, vocabulary), normal(4, GROUPS, vocabulary)
    states = [normal(5, GROUPS * BLOCK, hidden, dtype=dtype) for dtype in (F32, BF16)]
    return [Case("golden_token", "blocks", (rows, BLOCK), ("rows",), True, judge_pads=True),
            Case("embed_token", f"{rank} wide", (token, weight), ("token",), True),
            Case("markov_logits", f"{vocabulary} wide", (base, correction, BLOCK, 1), ("correction", "base"), True),
            *(Case("confidence_input", f"{x.dtype} {hidden} wide", (x, bigram, BLOCK, 2), ("bigram", "hidden"), True)
              for x in states)]


def _joined() -> list[Case]:
    tokens = [integers(seed, 0, 96, GROUPS, 1) for seed in range(BLOCK)]
    taps = [normal(seed, GROUPS, width, dtype=BF16) for seed, width in ((5, 32), (6, 32), (7, 8))]
    chances = [normal(seed, GROUPS, 1) for seed in range(BLOCK)]
    return [Case("concat_columns", f"{parts[0].dtype}", (parts, parts[0].dtype), ("parts",), True)
            for parts in (tokens, taps, chances)]


def _sums() -> list[Case]:
    logits = normal(8, GROUPS, 1000).mul(4).round()  # ties are common
    logits[0] = float("nan")
    logits[1, 5:9] = float("nan")
    return [Case("greedy_draft", "1000 wide", (logits,), ("logits",), True),
            Case("sigmoid", "chances", (torch.linspace(-12, 12, 67).view(-1, 1),), ("x",))]
