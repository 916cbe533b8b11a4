"""TileLang builder of mega_gate's first launch: x times the gate weights in fp32, as partial products over K."""

from typing import Any

ROW_TILE = 128
K_BLOCK = 64
STAGES = 4


def expert_tile(experts: int) -> int:
    """Columns of one block: all experts when they fit one block, else half of them."""
    return experts if experts <= 256 else experts // 2


def build(hidden: int, experts: int) -> Any:
    """products[split] holds K blocks [split * blocks, (split + 1) * blocks) of x[rows, hidden] * weight[experts, :].

    The copies are staged by hand: the pipeline pass wants a constant trip count for its waits.
    """
    import tilelang.language as T

    tile = expert_tile(experts)
    k_blocks = hidden // K_BLOCK
    rows, splits = T.dynamic("rows"), T.dynamic("splits")
    bf16, f32 = "bfloat16", "float32"

    @T.prim_func
    def gate_product(
        x: T.Tensor((rows, hidden), bf16), weight: T.Tensor((experts, hidden), bf16), blocks: T.int32,
        products: T.Tensor((splits, rows, experts), f32),
    ):
        with T.Kernel(experts // tile, T.ceildiv(rows, ROW_TILE), splits, threads=256) as (column, group, split):
            left = T.alloc_shared((STAGES, ROW_TILE, K_BLOCK), bf16)
            right = T.alloc_shared((STAGES, tile, K_BLOCK), bf16)
            acc = T.alloc_fragment((ROW_TILE, tile), f32)
            T.clear(acc)
            first = split * blocks
            top, side = group * ROW_TILE, column * tile
            for s in T.unroll(STAGES - 1):
                # Blocks past the end are read again from the last one: the waits count copies, not blocks.
                start = T.min(first + s, k_blocks - 1) * K_BLOCK
                T.async_copy(x[top : top + ROW_TILE, start : start + K_BLOCK], left[s, :, :])
                T.async_copy(weight[side : side + tile, start : start + K_BLOCK], right[s, :, :])
            for k in T.serial(T.min(blocks, k_blocks - first)):
                T.ptx_wait_group(2 * (STAGES - 2))
                T.fence_proxy_async()
                T.sync_threads()
                ahead = T.min(first + k + STAGES - 1, k_blocks - 1) * K_BLOCK
                T.async_copy(x[top : top + ROW_TILE, ahead : ahead + K_BLOCK], left[(k + STAGES - 1) % STAGES, :, :])
                T.async_copy(weight[side : side + tile, ahead : ahead + K_BLOCK],
                             right[(k + STAGES - 1) % STAGES, :, :])
                T.gemm(left[k % STAGES, :, :], right[k % STAGES, :, :], acc, transpose_B=True,
                       policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(ROW_TILE, tile):
                if top + i < rows:
                    products[split, top + i, side + j] = acc[i, j]

    return gate_product
