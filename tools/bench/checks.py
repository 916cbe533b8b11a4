"""Correctness of each case on a device: byte equality where the format is exact, else relative L2 against float64."""

from __future__ import annotations

from collections.abc import Callable

import torch

from dsv41c.compiler.ops import mega, moe
from dsv41c.tools.bench import attention_checks, inputs
from dsv41c.tools.bench.comparing import close, require, same_bytes
from dsv41c.tools.bench.launching import Case

ROWS = (1, 31, 32, 33, 128, 512, 2048, 8192)
HALF_STEP = 1e-4  # relative L2 that rare one-step flips of bf16 may leave


def cast_is_exact(x: torch.Tensor, codes: torch.Tensor, scales: torch.Tensor) -> None:
    """The stored bytes are the quantizer's bytes of the kernel's own bf16 output."""
    wanted_codes, wanted_scales = mega.mxfp8(x)
    same_bytes(codes, wanted_codes, "codes")
    same_bytes(scales, wanted_scales, "scales")


def poison_changes_nothing(case: Case, tensors: list[torch.Tensor], per_row: int, outputs: int, rows: int) -> None:
    """The first `per_row` tensors' middle row as NaN: every other row keeps its bits."""
    before = [t.clone() for t in tensors[outputs:]]
    row = rows // 2
    for t in tensors[:per_row]:
        t[row] = float("nan")
    case.run(tensors, rows)
    for old, new in zip(before, tensors[outputs:], strict=True):
        keep = torch.arange(rows, device=old.device) != row
        same_bytes(old[keep], new[keep], "rows beside a NaN row")


# --- mega_mhc --------------------------------------------


def mega_mhc(case: Case, rows: int, hidden: int) -> dict[str, float]:
    weights = inputs.mega_mhc_weights(hidden)
    tensors = inputs.mega_mhc(rows, hidden, weights)
    if rows > 1:
        tensors[0][rows - 1] = 0
        tensors[1][rows - 1] = 0
    case.run(tensors, rows)
    report: dict[str, float] = {}
    names = ("streams", "alpha", "beta", "gamma", "x")
    for part in {slice(0, 128), slice(max(0, rows - 128), rows)} if rows > 128 else {slice(0, rows)}:
        wanted = _mega_mhc_wide([t[part] for t in tensors[:5]], weights)
        for name, ours, reference in zip(names, [t[part] for t in tensors[9:14]], wanted, strict=True):
            close(ours, reference, HALF_STEP, name, report)
    require(all(bool(t.float().isfinite().all()) for t in tensors[9:14]), "outputs are finite, zero rows included")
    cast_is_exact(tensors[13], tensors[14], tensors[15])
    if rows > 1:
        poison_changes_nothing(case, tensors, 5, 9, rows)
    return report


def _mega_mhc_wide(given: list[torch.Tensor], weights: dict[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
    y, streams, alpha, beta, gamma = (t.double() for t in given)
    after = beta[..., None] * y[:, None] + torch.einsum("tjk,tjh->tkh", gamma, streams)
    after = after.bfloat16()
    z = after.double()
    collapsed = (alpha[..., None] * z).sum(1).bfloat16().double()
    x = (collapsed * (collapsed.square().mean(-1, keepdim=True) + 1e-20).rsqrt() * weights["norm"].double()).bfloat16()
    flat = z.flatten(1)
    mix = (flat @ weights["fn"].double().T) * (flat.square().mean(-1, keepdim=True) + 1e-20).rsqrt()
    scale = weights["scale"].double().repeat_interleave(torch.tensor([4, 4, 16], device=y.device))
    mix = mix * scale + weights["base"].double()
    table = torch.softmax(mix[:, 8:].view(-1, 4, 4), -1) + 1e-6
    table = table / (table.sum(-2, keepdim=True) + 1e-6)
    for _ in range(19):
        table = table / (table.sum(-1, keepdim=True) + 1e-6)
        table = table / (table.sum(-2, keepdim=True) + 1e-6)
    return after, torch.sigmoid(mix[:, :4]) + 1e-6, 2 * torch.sigmoid(mix[:, 4:8]), table, x


# --- mega_gate -------------------------------------------


def mega_gate(case: Case, rows: int, hidden: int, experts: int, topk: int) -> dict[str, float]:
    weights = inputs.mega_gate_weights(hidden, experts)
    report: dict[str, float] = {}
    tensors = inputs.mega_gate(rows, hidden, experts, topk, weights)
    case.run(tensors, rows)
    score, key = _gate_wide(tensors)
    expert, weight = tensors[5].long(), tensors[6]
    require(bool(((expert >= 0) & (expert < experts)).all()), "ids are experts")
    best = key.topk(topk, -1).values
    # A choice may differ from float64's only between keys that float32 cannot tell apart.
    report["key"] = float((key.gather(1, expert) - best).abs().max())
    require(report["key"] <= 2e-5, f"chosen keys: {report['key']:.1e} from the best")
    chosen = score.gather(1, expert)
    close(weight, 1.5 * chosen / chosen.sum(-1, keepdim=True), 1e-5, "weight", report)
    _gate_ties(case, tensors, rows, topk)
    if rows > 1:
        case.run(tensors, rows)
        poison_changes_nothing(case, tensors, 1, 5, rows)
        middle = tensors[5][rows // 2]
        require(middle.tolist() == list(range(topk)), f"ids of a NaN row: {middle.tolist()}")
    return report


def _gate_wide(tensors: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    x, gate, bias, bias_vl, table = tensors[:5]
    score = torch.nn.functional.softplus(x.double() @ gate.double().T).sqrt()
    image = (table[:, 7:8] & moe.IMAGE).bool()
    return score, score + torch.where(image, bias_vl.double(), bias.double())


def _gate_ties(case: Case, tensors: list[torch.Tensor], rows: int, topk: int) -> None:
    """Experts in equal pairs: the even one comes first and its twin right after it."""
    kept = [t.clone() for t in tensors[1:4]]
    for t in tensors[1:4]:
        t[1::2] = t[0::2]
    case.run(tensors, rows)
    expert = tensors[5]
    pairs = expert[:, : topk // 2 * 2].view(rows, -1, 2)
    in_order = (pairs[..., 0] % 2 == 0) & (pairs[..., 1] == pairs[..., 0] + 1)
    require(bool(in_order.all()), "ties: lower id first")
    for t, old in zip(tensors[1:4], kept, strict=True):
        t.copy_(old)


# --- norms and stores -------------------------------------


def rmsnorm_mxfp8(case: Case, rows: int, width: int) -> dict[str, float]:
    weight = 1 + inputs.normal(width, scale=0.1)
    report: dict[str, float] = {}
    tensors = inputs.rmsnorm_mxfp8(rows, width, weight)
    if rows > 1:
        tensors[0][0] = 0
    case.run(tensors, rows)
    x = tensors[0].double()
    wide = (x * (x.square().mean(-1, keepdim=True) + 1e-20).rsqrt() * weight.double()).bfloat16()
    close(tensors[2], wide, HALF_STEP, "y", report)
    require(bool(tensors[2].isfinite().all()), "outputs are finite, zero rows included")
    cast_is_exact(tensors[2], tensors[3], tensors[4])
    if rows > 1:
        poison_changes_nothing(case, tensors, 1, 2, rows)
    if rows <= 2048:  # sums of small integers are exact in any order: the op's reference gives the same bytes
        tensors[0].copy_(torch.randint(-8, 9, tensors[0].shape, device=x.device))
        case.run(tensors, rows)
        wanted = mega._rmsnorm_mxfp8(tensors[0].cpu(), weight.cpu(), 1e-20)
        for name, ours, reference in zip(("y", "codes", "scales"), tensors[2:], wanted, strict=True):
            same_bytes(ours.cpu(), reference, f"{name} of integers")
    return report


def norm_rope_store(case: Case, rows: int, width: int, rope: int, ring: int) -> dict[str, float]:
    report: dict[str, float] = {}
    for group in (4, 512):  # decode rows, and chunks longer than the ring
        tensors = inputs.norm_rope_store(rows, width, rope, ring, group, pads=min(3, rows - 1))
        wanted = [t.cpu().clone() for t in tensors]
        tensors[0][(tensors[2][:, 7] & inputs.PAD).bool()] = float("nan")
        case.run(tensors, rows)
        mega._norm_rope_store(*wanted, 1e-20)
        differ = (tensors[4].cpu() != wanted[4]).float().mean()
        report["bytes that differ"] = max(report.get("bytes that differ", 0.0), float(differ))
        require(float(differ) <= 1e-3, f"bytes of random keys: {float(differ):.1e} differ")
        same_bytes(tensors[4][-1].cpu(), wanted[4][-1], "trash slot")
        tensors = inputs.norm_rope_store(rows, width, rope, ring, group, pads=min(3, rows - 1))
        tensors[0].copy_(torch.randint(-8, 9, tensors[0].shape, device=tensors[0].device))
        wanted = [t.cpu().clone() for t in tensors]
        case.run(tensors, rows)
        mega._norm_rope_store(*wanted, 1e-20)
        same_bytes(tensors[4].cpu(), wanted[4], f"entries of integers, groups of {group}")
    return report


def embed_expand(case: Case, rows: int, hidden: int, vocabulary: int) -> dict[str, float]:
    table = inputs.normal(vocabulary, hidden)
    tensors = inputs.embed_expand(rows, hidden, table)
    case.run(tensors, rows)
    token = tensors[0][:, 5].long()
    inside = token.clamp(0, vocabulary - 1)
    vector = torch.where((inside == token)[:, None], table[inside], torch.zeros_like(table[:1]))
    same_bytes(tensors[2], vector[:, None].expand(-1, 4, -1), "streams")
    same_bytes(tensors[3], torch.eye(4, device=table.device)[:1].expand(rows, -1), "alpha")
    return {}


CHECKS: dict[str, Callable[[Case, int], dict[str, float]]] = {
    "mega_mhc": lambda c, n: mega_mhc(c, n, 5120),
    "mega_mhc_maps": lambda c, n: mega_mhc(c, n, 5120),
    "mega_mhc_demo": lambda c, n: mega_mhc(c, n, 128),
    "mega_gate": lambda c, n: mega_gate(c, n, 5120, 384, 6),
    "mega_gate_draft": lambda c, n: mega_gate(c, n, 5120, 128, 3),
    "mega_gate_demo": lambda c, n: mega_gate(c, n, 128, 16, 2),
    "rmsnorm_mxfp8": lambda c, n: rmsnorm_mxfp8(c, n, 5120),
    "rmsnorm_mxfp8_query": lambda c, n: rmsnorm_mxfp8(c, n, 1280),
    "rmsnorm_mxfp8_demo": lambda c, n: rmsnorm_mxfp8(c, n, 64),
    "norm_rope_store": lambda c, n: norm_rope_store(c, n, 512, 64, 134),
    "norm_rope_store_demo": lambda c, n: norm_rope_store(c, n, 64, 32, 38),
    "embed_expand": lambda c, n: embed_expand(c, n, 5120, 129280),
    "mega_attention": lambda c, n: attention_checks.check(c, n, 64, 512, True),
    "mega_attention_split": lambda c, n: attention_checks.check(c, n, 64, 512, True),
    "mega_attention_uncast": lambda c, n: attention_checks.check(c, n, 64, 512, False),
    "mega_attention_small": lambda c, n: attention_checks.check(c, n, 16, 128, False),
    "mega_attention_window": lambda c, n: attention_checks.check(c, n, 64, 0, False),
    "embed_expand_demo": lambda c, n: embed_expand(c, n, 128, 129280),
}
