"""Which kernels run an op on a GPU: sources, launch parameters and scratch for the op's static shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dsv41c.compiler.kernels.attention_catalog import AttentionShape, attention_launches, attention_shape
from dsv41c.compiler.kernels.source import Float, Grid, Int32, KernelSource, Param, Scratch, Tensor
from dsv41c.runtime.plan.expr import Binary, Expr

ROWS = "rows"
SMS = 132  # of the H200: launch sizes aim at whole waves of it
STREAMS = 4
SUPPORTED = "torch.bfloat16"


@dataclass(frozen=True)
class OpKernels:
    """The launches of one op in order, and the scratch they share."""

    op: str
    launches: tuple[KernelSource, ...]
    scratch_bytes: Expr = 0


def find_kernels(op: str, args: Sequence[Any], target: str, is_invariant: bool = True) -> OpKernels | None:
    """Kernels for the op's arguments (tensors as anything with dtype and sizes); None when it has none for them on the
    target. `is_invariant`: where a kernel can do so at a price, a row has the same bits at every number of rows."""
    if op in _ATTENTION:
        return _find_attention(op, args, target, is_invariant)
    finder = _FINDERS.get(op)
    return finder(*args) if finder is not None else None


# --- mega_mhc --------------------------------------------

# A block of the first launch takes 64 rows and some of the 64-column chunks of a row: one chunk up to FEW_ROWS, above
# as many as leave one whole wave of blocks (a wave and a bit costs a fifth more), at most MOST_CHUNKS.
FEW_ROWS = 512
MOST_CHUNKS = 10
SERIAL_ROWS = 512  # above, a thread takes a row's Sinkhorn, 32 rows a block; below, a block takes one row
PARTIAL_BYTES = 4 * 25


def mega_mhc(hidden: int, iterations: int, rms_eps: float, hc_eps: float, maps: bool = False) -> OpKernels:
    """`maps`: the second configuration of the first launch, whose mix weights come through a tensor map."""
    all_chunks = hidden // 64
    tiles = _max(1, _ceildiv(ROWS, 64))
    whole_wave = _ceildiv(all_chunks, _max(1, _floordiv(2 * SMS, tiles)))
    chunks = _max(1, _mul(_above(FEW_ROWS), _min(whole_wave, MOST_CHUNKS)))
    splits = _ceildiv(all_chunks, chunks)
    collapsed_bytes = _mul(ROWS, 2 * hidden)
    first = KernelSource(
        file="mhc/post_mix.py", constants=(("hidden", hidden), *((("maps", 1),) if maps else ())), tensor_maps=maps,
        # 8 without maps for sm_90a, as measured, 280 with them: more registers would halve the blocks of an SM.
        spill_limit_bytes=288 if maps else 48,
        bindings=_named(
            y=Tensor(0), streams=Tensor(1), alpha=Tensor(2), beta=Tensor(3), gamma=Tensor(4), weights=Tensor(5),
            streams_out=Tensor(9), u=Scratch(0), partials=Scratch(collapsed_bytes), splits=Int32(splits),
            rows=Int32(ROWS)),
    )
    mix_rows = _add(1, _mul(31, _above(SERIAL_ROWS)))
    second = KernelSource(
        file="cuda/mhc_finish.cu", constants=(("HIDDEN", hidden), ("ITERATIONS", iterations)),
        bindings=_named(
            partials=Scratch(collapsed_bytes), u=Scratch(0), weight=Tensor(8), scale=Tensor(6), base=Tensor(7),
            alpha=Tensor(10), beta=Tensor(11), gamma=Tensor(12), x=Tensor(13), codes=Tensor(14), scales=Tensor(15),
            rms_eps=Float(rms_eps), hc_eps=Float(hc_eps), splits=Int32(splits), mix_rows=Int32(mix_rows),
            rows=Int32(ROWS)),
        grid=(_add(_ceildiv(ROWS, mix_rows), ROWS), 1, 1), block=(128, 1, 1),
    )
    # At least splits * rows, and never less for more rows: an arena is laid out at the bound of the rows.
    partials = _max(_mul(ROWS, _ceildiv(all_chunks, MOST_CHUNKS)),
                    _min(_mul(ROWS, all_chunks), max(FEW_ROWS * all_chunks, 2 * SMS * 64)))
    return OpKernels("mega_mhc", (first, second), _add(collapsed_bytes, _mul(partials, PARTIAL_BYTES)))


def _find_mega_mhc(
    y: Any, streams: Any, alpha: Any, beta: Any, gamma: Any, fn: Any, scale: Any, base: Any, weight: Any,
    iterations: int, rms_eps: float, hc_eps: float,
) -> OpKernels | None:
    hidden = y.sizes[1]
    if not _is_bf16(y, streams, fn, weight) or streams.sizes[1] != STREAMS or hidden % 64:
        return None
    return mega_mhc(hidden, iterations, rms_eps, hc_eps)


# --- mega_gate --------------------------------------------


def mega_gate(hidden: int, experts: int, topk: int, routed_scale: float) -> OpKernels:
    k_blocks, tiles = hidden // 64, 1 if experts <= 256 else 2
    groups = _ceildiv(ROWS, 128)
    # As many K splits as fill one wave of blocks, then the fewest that cover K with that many blocks each.
    blocks = _ceildiv(k_blocks, _max(1, _floordiv(SMS // tiles, groups)))
    splits = _ceildiv(k_blocks, blocks)
    first = KernelSource(
        file="moe/gate_product.py", constants=(("hidden", hidden), ("experts", experts)), manual_sync=True,
        bindings=_named(x=Tensor(0), weight=Tensor(1), products=Scratch(0), blocks=Int32(blocks), splits=Int32(splits),
                        rows=Int32(ROWS)),
    )
    second = KernelSource(
        file="cuda/gate_select.cu", constants=(("EXPERTS", experts), ("TOPK", topk)),
        bindings=_named(
            products=Scratch(0), bias=Tensor(2), bias_image=Tensor(3), table=Tensor(4), expert=Tensor(5),
            weight=Tensor(6), routed_scale=Float(routed_scale), splits=Int32(splits), rows=Int32(ROWS)),
        grid=_select_grid(splits), block=(128, 1, 1),
    )
    # At least splits * rows, and never less for more rows, as above.
    products = _max(ROWS, _min(_mul(ROWS, k_blocks), SMS // tiles * 128))
    return OpKernels("mega_gate", (first, second), _mul(products, 4 * experts))


def _select_grid(splits: Expr) -> Grid:
    """Four rows a block where the products are whole (splits 1), else one."""
    several = _min(1, _add(splits, -1))
    return _ceildiv(ROWS, _add(4, _mul(-3, several))), 1, 1


def _find_mega_gate(
    x: Any, weight: Any, bias: Any, bias_vl: Any, rows: Any, topk: int, routed_scale: float
) -> OpKernels | None:
    experts, hidden = weight.sizes
    if not _is_bf16(x, weight) or hidden % 64 or experts % 8 or experts > 512 or experts > 256 and experts % 16:
        return None
    return mega_gate(hidden, experts, topk, routed_scale)


# --- one launch each --------------------------------------


def rmsnorm_mxfp8(width: int, eps: float) -> OpKernels:
    source = KernelSource(
        file="norm/rmsnorm_mxfp8.py", constants=(("width", width),),
        bindings=_named(x=Tensor(0), weight=Tensor(1), eps=Float(eps), y=Tensor(2), codes=Tensor(3), scales=Tensor(4),
                        rows=Int32(ROWS)),
    )
    return OpKernels("rmsnorm_mxfp8", (source,))


def _find_rmsnorm_mxfp8(x: Any, weight: Any, eps: float) -> OpKernels | None:
    fits = _is_bf16(x, weight) and len(x.sizes) == 2 and x.sizes[1] % 32 == 0
    return rmsnorm_mxfp8(x.sizes[1], eps) if fits else None


def norm_rope_store(width: int, rope: int, ring: int, eps: float) -> OpKernels:
    rows_of_block = 128 // min(32, width // 8)
    source = KernelSource(
        file="cuda/norm_rope_store.cu", constants=(("WIDTH", width), ("ROPE", rope)),
        bindings=_named(kv=Tensor(0), weight=Tensor(1), table=Tensor(2), angles=Tensor(3), ring=Tensor(4),
                        eps=Float(eps), ring_size=Int32(ring), rows=Int32(ROWS)),
        grid=(_ceildiv(ROWS, rows_of_block), 1, 1), block=(128, 1, 1),
    )
    return OpKernels("norm_rope_store", (source,))


def _find_norm_rope_store(kv: Any, weight: Any, rows: Any, table: Any, ring: Any, eps: float) -> OpKernels | None:
    width, rope = kv.sizes[1], 2 * table.sizes[1]
    vectors = width // 8
    whole_lanes = width % 32 == 0 and (vectors % 32 == 0 or vectors & (vectors - 1) == 0)
    if not _is_bf16(kv, weight) or not whole_lanes or rope % 8 or rope > width:
        return None
    return norm_rope_store(width, rope, ring.sizes[1], eps)


def embed_expand(hidden: int, vocabulary: int) -> OpKernels:
    source = KernelSource(
        file="embed/embed_expand.py", constants=(("hidden", hidden), ("vocabulary", vocabulary), ("streams", STREAMS)),
        bindings=_named(table=Tensor(0), weight=Tensor(1), expanded=Tensor(2), alpha=Tensor(3), rows=Int32(ROWS)),
    )
    return OpKernels("embed_expand", (source,))


def _find_embed_expand(rows: Any, weight: Any, streams: int, dtype: Any) -> OpKernels | None:
    vocabulary, hidden = weight.sizes
    if not _is_bf16(weight) or str(dtype) != SUPPORTED or streams != STREAMS or hidden % 8:
        return None
    return embed_expand(hidden, vocabulary)


# --- attention --------------------------------------------

_ATTENTION = frozenset({"mega_sparse_attention", "mega_window_attention"})


def mega_attention(op: str, shape: AttentionShape, target: str, is_invariant: bool) -> OpKernels:
    return OpKernels(op, *attention_launches(shape, target, is_invariant))


def _find_attention(op: str, args: Sequence[Any], target: str, is_invariant: bool) -> OpKernels | None:
    window_size, *_, scale, _, cast = (a for a in args if not hasattr(a, "sizes"))
    shape = attention_shape([a for a in args if hasattr(a, "sizes")], window_size, scale, cast)
    return mega_attention(op, shape, target, is_invariant) if shape else None


_FINDERS: dict[str, Callable[..., OpKernels | None]] = {
    "mega_mhc": _find_mega_mhc, "mega_gate": _find_mega_gate, "rmsnorm_mxfp8": _find_rmsnorm_mxfp8,
    "norm_rope_store": _find_norm_rope_store, "embed_expand": _find_embed_expand,
}


def _is_bf16(*tensors: Any) -> bool:
    return all(str(t.dtype) == SUPPORTED for t in tensors)


def _named(**params: Param) -> tuple[tuple[str, Param], ...]:
    return tuple(params.items())


def _add(a: Expr, b: Expr) -> Expr:
    return a + b if isinstance(a, int) and isinstance(b, int) else Binary("+", a, b)


def _mul(a: Expr, b: Expr) -> Expr:
    return a * b if isinstance(a, int) and isinstance(b, int) else Binary("*", a, b)


def _min(a: Expr, b: Expr) -> Expr:
    return Binary("min", a, b)


def _max(a: Expr, b: Expr) -> Expr:
    return Binary("max", a, b)


def _floordiv(a: Expr, b: Expr) -> Expr:
    return Binary("floordiv", a, b)


def _above(bound: int) -> Expr:
    """1 for more rows than `bound`, else 0."""
    return _min(1, _floordiv(ROWS, bound + 1))


def _ceildiv(a: Expr, b: Expr) -> Expr:
    return Binary("ceildiv", a, b)
