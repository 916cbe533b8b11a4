"""TileLang builder of mega_mhc's first launch: post of the previous site, collapse, and partial mix products.

A block walks every `splits`-th piece of 64 columns for 64 rows. R' is rounded to bf16 in registers, stored, and left
in shared memory as the left operand of the mix product; the mix weights are bf16 hi and lo parts, so one bf16 product
is finer than a TF32 one. u, the collapse of R' with the carried alpha, goes to scratch for the second launch.

On an H200 the link between the halves of the L2 cache is what it waits for: 79 % busy at 2048 rows, DRAM 62 %. So the
blocks of a tile read neighbouring pieces at the same time, and R' is stored as data that nobody reads soon: 86.9 ->
83.7 us with the second launch. The same hint on the loads cost 2 us, 128 rows a block (half the reads of the weights)
20 us.

With `maps` the mix weights of a piece come through a tensor map: one thread starts the copy once the product before has
read its operand, and it runs beside the sums of the piece. It spills 280 bytes; not measured yet.

The same launch in CUDA C++, with R' going from registers straight into mma.sync and the weights resident in shared
memory, was right but slower on an H200: 87 against 73 us at 2048 rows, 305 against 269 us at 8192.
"""

from typing import Any

STREAMS = 4
MIXES = 24  # alpha, beta and gamma of a site
PRODUCTS = 25  # the mixes and the square sum
COLUMNS = 64  # of one step
ROW_TILE = 64
VECTOR = 8  # bf16 elements of one 16-byte access

STORES = """
__device__ __forceinline__ void mx_store_streaming(void* to, const void* from) {
  __stcs(reinterpret_cast<uint4*>(to), *reinterpret_cast<const uint4*>(from));
}
"""


def build(hidden: int, maps: int = 0, threads: int = 256, blocks_per_sm: int = 2) -> Any:
    """partials[split] holds the products of the 64-column pieces split, split + splits, split + 2 * splits, ..."""
    import tilelang.language as T

    lanes = COLUMNS // VECTOR  # of one row
    step = threads // lanes  # rows between two rows of one thread
    passes = ROW_TILE // step
    all_chunks = hidden // COLUMNS
    rows, splits = T.dynamic("rows"), T.dynamic("splits")
    bf16, f32 = "bfloat16", "float32"

    @T.prim_func
    def mhc_post_mix(
        y: T.Tensor((rows, hidden), bf16), streams: T.Tensor((rows, STREAMS, hidden), bf16),
        alpha: T.Tensor((rows, STREAMS), f32), beta: T.Tensor((rows, STREAMS), f32),
        gamma: T.Tensor((rows, STREAMS * STREAMS), f32),
        weights: T.Tensor((all_chunks, 2 * MIXES, STREAMS * COLUMNS), bf16),
        streams_out: T.Tensor((rows, STREAMS, hidden), bf16), u: T.Tensor((rows, hidden), bf16),
        partials: T.Tensor((splits, rows, PRODUCTS), f32),
    ):
        with T.Kernel(splits, T.ceildiv(rows, ROW_TILE), threads=threads) as (split, tile):
            T.annotate_min_blocks_per_sm(blocks_per_sm)
            T.import_source(STORES)
            left = T.alloc_shared((ROW_TILE, STREAMS * COLUMNS), bf16)
            # 48 rows are used: a product 64 wide is one instruction, 24 or 48 wide are several.
            right = T.alloc_shared((64, STREAMS * COLUMNS), bf16)
            products = T.alloc_shared((ROW_TILE, 64), f32)
            mixes = T.alloc_shared((ROW_TILE, MIXES), f32)
            acc = T.alloc_fragment((ROW_TILE, 64), f32)
            held_y = T.alloc_local((passes * VECTOR,), bf16)
            held = T.alloc_local((passes * STREAMS * VECTOR,), bf16)
            out = T.alloc_local((VECTOR,), bf16)
            mix = T.alloc_local((MIXES,), f32)
            collapsed = T.alloc_local((VECTOR,), f32)
            value = T.alloc_local((VECTOR,), f32)
            squares = T.alloc_local((passes,), f32)
            arrived = T.alloc_barrier(threads) if maps else None
            thread = T.get_thread_binding(0)
            row0, lane, sub = tile * ROW_TILE, thread % lanes, thread // lanes
            T.clear(acc)
            for p in T.unroll(passes):
                squares[p] = 0.0
            for i, j in T.Parallel(ROW_TILE, STREAMS):
                mixes[i, j] = alpha[T.min(row0 + i, rows - 1), j]
                mixes[i, STREAMS + j] = beta[T.min(row0 + i, rows - 1), j]
            for i, j in T.Parallel(ROW_TILE, STREAMS * STREAMS):
                mixes[i, 2 * STREAMS + j] = gamma[T.min(row0 + i, rows - 1), j]
            T.sync_threads()
            for c in T.serial(T.truncdiv(all_chunks - 1 - split, splits) + 1):
                chunk = c * splits + split
                column = chunk * COLUMNS + lane * VECTOR
                for p in T.unroll(passes):
                    for v in T.vectorized(VECTOR):
                        held_y[p * VECTOR + v] = y[T.min(row0 + p * step + sub, rows - 1), column + v]
                    for s in T.unroll(STREAMS):
                        for v in T.vectorized(VECTOR):
                            held[(p * STREAMS + s) * VECTOR + v] = streams[
                                T.min(row0 + p * step + sub, rows - 1), s, column + v]
                if maps:  # rows behind the 48 come as zeros
                    T.tma_copy(weights[chunk, 0:64, :], right, barrier=arrived)
                    T.barrier_arrive(arrived)
                else:
                    T.copy(weights[chunk, 0 : 2 * MIXES, :], right[0 : 2 * MIXES, :])
                for p in T.unroll(passes):
                    for j in T.unroll(MIXES // 4):
                        for v in T.vectorized(4):
                            mix[j * 4 + v] = mixes[p * step + sub, j * 4 + v]
                    for v in T.unroll(VECTOR):
                        collapsed[v] = 0.0
                    for k in T.unroll(STREAMS):
                        for v in T.unroll(VECTOR):
                            value[v] = mix[STREAMS + k] * T.cast(held_y[p * VECTOR + v], f32)
                            for s in T.unroll(STREAMS):
                                value[v] += mix[(2 + s) * STREAMS + k] * T.cast(
                                    held[(p * STREAMS + s) * VECTOR + v], f32)
                        for v in T.vectorized(VECTOR):
                            out[v] = T.cast(value[v], bf16)
                        for v in T.unroll(VECTOR):
                            value[v] = T.cast(out[v], f32)
                            squares[p] += value[v] * value[v]
                            collapsed[v] += mix[k] * value[v]
                        for v in T.vectorized(VECTOR):
                            left[p * step + sub, k * COLUMNS + lane * VECTOR + v] = out[v]
                        if row0 + p * step + sub < rows:
                            T.call_extern("handle", "mx_store_streaming", T.address_of(
                                streams_out[row0 + p * step + sub, k, column]), T.address_of(out[0]))
                    for v in T.vectorized(VECTOR):
                        out[v] = T.cast(collapsed[v], bf16)
                    if row0 + p * step + sub < rows:
                        for v in T.vectorized(VECTOR):
                            u[row0 + p * step + sub, column + v] = out[v]
                if maps:
                    T.mbarrier_wait_parity(arrived, c % 2)
                T.gemm(left, right, acc, transpose_B=True)
            T.copy(acc, products)
            T.sync_threads()
            for i in T.serial(ROW_TILE * 32 // threads):
                if thread % 32 < MIXES and row0 + i * (threads // 32) + thread // 32 < rows:
                    partials[split, row0 + i * (threads // 32) + thread // 32, thread % 32] = (
                        products[i * (threads // 32) + thread // 32, thread % 32]
                        + products[i * (threads // 32) + thread // 32, thread % 32 + MIXES])
            for p in T.unroll(passes):
                for shift in T.unroll(3):
                    squares[p] += T.shfl_xor(squares[p], 4 >> shift)
                if lane == 0 and row0 + p * step + sub < rows:
                    partials[split, row0 + p * step + sub, MIXES] = squares[p]

    return mhc_post_mix
