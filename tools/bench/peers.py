"""What others offer for the same work, timed in the same way; None where a package is missing."""

from __future__ import annotations

import importlib.util

import torch

from dsv41c.tools.bench import inputs
from dsv41c.tools.bench.launching import graph_us

MISSING: dict[str, str] = {}


def _has(package: str) -> bool:
    if importlib.util.find_spec(package) is None:
        MISSING[package] = "not installed"
        return False
    return True


def mhc_us(rows: int, hidden: int, fn: torch.Tensor, sets: int) -> float | None:
    """tile_kernels post and pre (16 partials, as it asks for), with the mix product as a torch TF32 matmul between."""
    if not _has("tile_kernels"):
        return None
    from tile_kernels.mhc import mhc_post_fwd, mhc_pre_big_fuse_fwd

    torch.backends.cuda.matmul.allow_tf32 = True
    weights = fn.T.contiguous()
    calls = []
    for _ in range(sets):
        small = {"arranged": fn, "scale": fn[0, :3].clone(), "base": fn[0, :24].clone(), "norm": fn}
        given = inputs.mega_mhc(rows, hidden, small)
        y, streams, _, beta, gamma = given[:5]
        after, products = torch.empty_like(streams), inputs.normal(16, rows, 24, dtype=torch.float32)
        squares = torch.rand(16, rows, device="cuda") * hidden
        mixes = (given[11], given[12].view(rows, 16), given[13])

        def call(y=y, streams=streams, beta=beta, gamma=gamma, after=after, products=products, squares=squares,
                 mixes=mixes, scale=given[6], base=given[7]) -> None:
            mhc_post_fwd(y[None], streams[None], beta[None, ..., None], gamma[None], after[None])
            torch.mm(after.view(rows, -1).float(), weights, out=products[0])
            mhc_pre_big_fuse_fwd(products, squares, scale, base, after, *mixes, 1e-20, 1e-6, 1e-6, 2.0, 20, 16)

        calls.append(call)
    return graph_us(calls)


def gate_us(sets: list[list[torch.Tensor]], topk: int) -> float:
    """The plain torch sequence: product, sqrt(softplus), bias, top-k, gather, normalise."""

    def call(tensors: list[torch.Tensor]) -> None:
        x, gate, bias, bias_vl, table = tensors[:5]
        score = torch.nn.functional.softplus((x @ gate.T).float()).sqrt()
        image = (table[:, 7:8] & inputs.IMAGE).bool()
        expert = (score + torch.where(image, bias_vl, bias)).topk(topk, -1).indices
        chosen = score.gather(1, expert)
        tensors[6].copy_(1.5 * chosen / (chosen.sum(-1, keepdim=True) + 1e-20))
        tensors[5].copy_(expert)

    return graph_us([lambda t=t: call(t) for t in sets])


def norm_us(rows: int, width: int, weight: torch.Tensor, sets: int) -> float | None:
    if not _has("tile_kernels"):
        return None
    from tile_kernels.quant import norm_forward_and_per_token_cast

    given = [inputs.normal(rows, width) for _ in range(sets)]

    def call(x: torch.Tensor) -> None:
        norm_forward_and_per_token_cast(x, weight, 1e-20, "e4m3", 32, round_sf=True, use_packed_ue8m0=True,
                                        with_out_bf16=True)

    return graph_us([lambda x=x: call(x) for x in given])


def attention_us(rows: int, selected: int, sets: int) -> float | None:
    """FlashMLA (sgl-flash-mla) over its V4 format, 584 bytes a key, the only one it has on sm_90a: 128 keys of a window
    and the selected ones; without rotary, casts and the commit of keys."""
    if not _has("flash_mla"):
        return None
    from flash_mla import flash_mla_with_kvcache, get_mla_metadata

    pages = {"window": 2048, "extra": 8192}
    cache = {name: torch.zeros(count, 64, 1, 584, dtype=torch.uint8, device="cuda") for name, count in pages.items()}
    sink, calls = inputs.normal(64, dtype=torch.float32), []
    for _ in range(sets):
        q, (meta, _) = inputs.normal(rows, 1, 64, 512), get_mla_metadata()
        window, extra = (torch.randint(0, pages[name] * 64, (rows, 1, keys), device="cuda", dtype=torch.int32)
                         for name, keys in (("window", 128), ("extra", selected)))

        def call(q=q, meta=meta, window=window, extra=extra) -> None:
            flash_mla_with_kvcache(q, cache["window"], None, None, 512, meta, indices=window, attn_sink=sink,
                                   extra_k_cache=cache["extra"], extra_indices_in_kvcache=extra, use_legacy=True)

        calls.append(call)
    return graph_us(calls)
