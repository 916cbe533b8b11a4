"""Random inputs and poisoned outputs of each case, in the order of the launch's tensors."""

from __future__ import annotations

import torch

DEVICE = "cuda"
BF16, F32 = torch.bfloat16, torch.float32
E4M3, E8M0 = torch.float8_e4m3fn, torch.float8_e8m0fnu
IMAGE, PAD = 2, 4


def poisoned(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """All bits set: NaN in every float format, -1 in integers."""
    size = torch.empty(0, dtype=dtype).element_size()
    count = int(torch.Size(shape).numel()) * size
    return torch.full((count,), 255, dtype=torch.uint8, device=DEVICE).view(dtype).view(shape)


def normal(*shape: int, dtype: torch.dtype = BF16, scale: float = 1.0) -> torch.Tensor:
    return (torch.randn(shape, device=DEVICE) * scale).to(dtype)


def row_table(rows: int, group: int, slots: int, pads: int = 0, positions: int = 4096) -> torch.Tensor:
    """Groups of `group` rows a slot; the last `pads` rows are pad rows of the trash slot."""
    index = torch.arange(rows, device=DEVICE)
    slot = index // group
    base = torch.randint(0, positions - group, (rows,), device=DEVICE)[slot]
    first = slot * group
    live = rows - pads
    count = torch.minimum(torch.full_like(index, group), live - first)
    table = torch.stack([slot % slots, base + index - first, base, first, count, index, index * 0, index * 0], 1)
    pad = index >= live
    trash = torch.stack([index * 0 + slots, index * 0, index * 0, index, index * 0 + 1, index * 0, index * 0,
                         index * 0 + (PAD | 1)], 1)
    return torch.where(pad[:, None], trash, table).to(torch.int32)


def mega_mhc(rows: int, hidden: int, weights: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    inputs = [normal(rows, hidden), normal(rows, 4, hidden), torch.rand(rows, 4, device=DEVICE),
              2 * torch.rand(rows, 4, device=DEVICE), torch.rand(rows, 4, 4, device=DEVICE) / 2]
    outputs = [poisoned((rows, 4, hidden), BF16), poisoned((rows, 4), F32), poisoned((rows, 4), F32),
               poisoned((rows, 4, 4), F32), poisoned((rows, hidden), BF16), poisoned((rows, hidden), E4M3),
               poisoned((rows, hidden // 32), E8M0)]
    return [*inputs, weights["arranged"], weights["scale"], weights["base"], weights["norm"], *outputs]


def mega_mhc_weights(hidden: int) -> dict[str, torch.Tensor]:
    from dsv41c.compiler.ops.mega import arrange_mix

    fn = torch.randn(24, 4 * hidden, device=DEVICE) * 1.4 / hidden**0.5
    return {"fn": fn, "arranged": arrange_mix(fn), "scale": torch.tensor([0.7, 1.1, 0.9], device=DEVICE),
            "base": normal(24, dtype=F32, scale=0.3), "norm": 1 + normal(hidden, scale=0.1)}


def mega_gate(rows: int, hidden: int, experts: int, topk: int, weights: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    table = torch.zeros(rows, 8, dtype=torch.int32, device=DEVICE)
    table[::3, 7] = IMAGE
    return [normal(rows, hidden), weights["gate"], weights["bias"], weights["bias_vl"], table,
            poisoned((rows, topk), torch.int32), poisoned((rows, topk), F32)]


def mega_gate_weights(hidden: int, experts: int) -> dict[str, torch.Tensor]:
    return {"gate": normal(experts, hidden, scale=hidden**-0.5), "bias": normal(experts, dtype=F32, scale=0.1),
            "bias_vl": normal(experts, dtype=F32, scale=0.1)}


def rmsnorm_mxfp8(rows: int, width: int, weight: torch.Tensor) -> list[torch.Tensor]:
    return [normal(rows, width), weight, poisoned((rows, width), BF16), poisoned((rows, width), E4M3),
            poisoned((rows, width // 32), E8M0)]


def norm_rope_store(rows: int, width: int, rope: int, ring: int, group: int, pads: int = 0) -> list[torch.Tensor]:
    slots = (rows + group - 1) // group
    angle = torch.rand(4096, rope // 2, device=DEVICE) * 6.28
    return [normal(rows, width), 1 + normal(width, scale=0.1), row_table(rows, group, slots, pads),
            torch.stack((angle.cos(), angle.sin()), -1), poisoned((slots + 1, ring, width + width // 32), torch.uint8)]


def embed_expand(rows: int, hidden: int, table: torch.Tensor) -> list[torch.Tensor]:
    rows_table = torch.zeros(rows, 8, dtype=torch.int32, device=DEVICE)
    rows_table[:, 5] = torch.randint(-2, table.shape[0] + 2, (rows,), device=DEVICE)
    return [rows_table, table, poisoned((rows, 4, hidden), BF16), poisoned((rows, 4), F32)]


SLOT_PAGES, PAGE_ROWS, POOL_PAGES, POSITIONS = 32, 64, 8192, 4096


def attention_state(slots: int) -> dict[str, torch.Tensor]:
    """Packed state whose codes are random, and the tables that lead to it; shared by all calls of a timing."""
    ring = torch.empty(slots + 1, 134, 528, dtype=torch.uint8, device=DEVICE)
    ring[..., :512] = normal(slots + 1, 134, 512, dtype=F32).to(E4M3).view(torch.uint8)
    ring[..., 512:] = torch.randint(122, 130, (slots + 1, 134, 16), device=DEVICE).to(torch.uint8)
    pool = torch.randint(0, 256, (POOL_PAGES + 1, PAGE_ROWS, 288), device=DEVICE, dtype=torch.uint8)
    pool[..., 256:] = (torch.rand(POOL_PAGES + 1, PAGE_ROWS, 32, device=DEVICE) * 0.6 + 0.05).to(E4M3).view(torch.uint8)
    angle = torch.rand(POSITIONS, 32, device=DEVICE) * 6.28
    return {"ring": ring, "pool": pool, "angles": torch.stack((angle.cos(), angle.sin()), -1).contiguous(),
            "pages": torch.randint(0, POOL_PAGES, (slots + 1, SLOT_PAGES), device=DEVICE, dtype=torch.int32)}


def mega_attention(rows: int, heads: int, selected: int, state: dict[str, torch.Tensor], group: int,
                   holes: bool = False) -> list[torch.Tensor]:
    """Tensors of one launch with a poisoned result; `selected` 0: attention over the window. `holes`: selections that
    end in -1, begin with it or hold nothing else, windows of few keys and of none, pads."""
    slots = state["ring"].shape[0] - 1
    table = row_table(rows, group, slots, pads=min(2, rows - 1) if holes else 0, positions=SLOT_PAGES * PAGE_ROWS)
    chosen = torch.randint(0, SLOT_PAGES * PAGE_ROWS, (rows, max(selected, 1)), device=DEVICE, dtype=torch.int32)
    if holes:
        chosen[1::8], chosen[2::8, selected // 2 :], chosen[3::8, : selected // 3] = -1, -1, -1
        table[5::8, 6] = table[5::8, 1] - 2
        table[1::16, 6] = table[1::16, 1] + 1
    given = [normal(rows, heads, 512), normal(rows, 512), state["ring"]]
    given += [state["pool"], state["pages"], chosen] if selected else []
    return [*given, normal(heads, dtype=F32), table, state["angles"], poisoned((rows, heads, 512), BF16)]
