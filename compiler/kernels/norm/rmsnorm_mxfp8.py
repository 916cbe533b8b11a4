"""TileLang builder of rmsnorm_mxfp8: RMSNorm of a row, rounded to bf16, with its e4m3 codes and ue8m0 scales."""

from typing import Any

VECTOR = 8  # bf16 elements of one 16-byte access
GROUP_LANES = 4  # lanes that share one scale of 32 elements

# The bit-level pieces that the language has no words for.
BITS = """
__device__ __forceinline__ unsigned mx_largest(float a, float b) {
  float m; asm("max.NaN.f32 %0, %1, %2;" : "=f"(m) : "f"(a), "f"(b)); return __float_as_uint(m);
}
__device__ __forceinline__ unsigned mx_scale_code(float amax) {
  unsigned bits = mx_largest(amax, 1e-4f);
  return (bits >> 23) - 8 + ((bits & 0x007FFFFFu) > 0x00600000u ? 1 : 0);
}
__device__ __forceinline__ float mx_inverse_scale(unsigned code) { return __uint_as_float((254 - code) << 23); }
__device__ __forceinline__ float mx_reciprocal_root(float v) { return __frcp_rn(__fsqrt_rn(v)); }
__device__ __forceinline__ float mx_divide(float a, float b) { return __fdiv_rn(a, b); }
__device__ __forceinline__ unsigned mx_pair(float a, float b) {
  unsigned short pair; asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(b), "f"(a)); return pair;
}
__device__ __forceinline__ unsigned mx_four(float a, float b, float c, float d) {
  return mx_pair(a, b) | mx_pair(c, d) << 16;
}
"""


def lanes_of_row(width: int) -> int:
    """Threads that share a row: a power of two that divides its vectors, so that no thread is ever idle."""
    vectors = width // VECTOR
    return min(128, vectors & -vectors)


def build(width: int, threads: int = 128) -> Any:
    """The prim_func for rows of `width` elements (a multiple of 32)."""
    import tilelang.language as T

    lanes = lanes_of_row(width)
    each, rows_of_block = width // VECTOR // lanes, threads // lanes
    warps = max(1, lanes // 32)
    rows = T.dynamic("rows")
    bf16, f32 = "bfloat16", "float32"

    @T.prim_func
    def rmsnorm_mxfp8(
        x: T.Tensor((rows, width), bf16), weight: T.Tensor((width,), bf16), eps: T.float32,
        y: T.Tensor((rows, width), bf16), codes: T.Tensor((rows, width // 4), "uint32"),
        scales: T.Tensor((rows, width // 32), "uint8"),
    ):
        with T.Kernel(T.ceildiv(rows, rows_of_block), threads=threads) as block:
            T.import_source(BITS)
            held = T.alloc_local((each * VECTOR,), bf16)
            norm = T.alloc_local((each * VECTOR,), bf16)
            value = T.alloc_local((VECTOR,), f32)
            out = T.alloc_local((VECTOR,), bf16)
            code = T.alloc_local((1,), "uint32")
            pair = T.alloc_local((2,), "uint32")
            total = T.alloc_local((1,), f32)
            top = T.alloc_local((1,), f32)
            partial = T.alloc_shared((threads // 32,), f32)
            thread = T.get_thread_binding(0)
            lane = thread % lanes
            row = block * rows_of_block + thread // lanes
            source = T.min(row, rows - 1)
            for i in T.unroll(each):
                for v in T.vectorized(VECTOR):
                    held[i * VECTOR + v] = x[source, (i * lanes + lane) * VECTOR + v]
            for i in T.unroll(each):
                for v in T.vectorized(VECTOR):
                    norm[i * VECTOR + v] = weight[(i * lanes + lane) * VECTOR + v]
            total[0] = 0.0
            for i in T.unroll(each * VECTOR):
                total[0] += T.cast(held[i], f32) * T.cast(held[i], f32)
            for step in T.unroll(min(lanes, 32).bit_length() - 1):
                total[0] += T.shfl_xor(total[0], 1 << step)
            if warps > 1:
                if thread % 32 == 0:
                    partial[thread // 32] = total[0]
                T.sync_threads()
                total[0] = 0.0
                for w in T.unroll(warps):
                    total[0] += partial[thread // 32 // warps * warps + w]
            total[0] = T.call_extern(f32, "mx_divide", total[0], float(width))
            total[0] = T.call_extern(f32, "mx_reciprocal_root", total[0] + eps)
            for i in T.unroll(each):
                for v in T.unroll(VECTOR):
                    value[v] = T.cast(held[i * VECTOR + v], f32) * total[0] * T.cast(norm[i * VECTOR + v], f32)
                for v in T.vectorized(VECTOR):
                    out[v] = T.cast(value[v], bf16)
                top[0] = 0.0
                for v in T.unroll(VECTOR):
                    value[v] = T.cast(out[v], f32)
                    top[0] = T.reinterpret(T.call_extern("uint32", "mx_largest", top[0], T.abs(value[v])), f32)
                for step in T.unroll(GROUP_LANES.bit_length() - 1):
                    top[0] = T.reinterpret(
                        T.call_extern("uint32", "mx_largest", top[0], T.shfl_xor(top[0], 1 << step)), f32)
                code[0] = T.call_extern("uint32", "mx_scale_code", top[0])
                top[0] = T.call_extern(f32, "mx_inverse_scale", code[0])
                for h in T.unroll(2):
                    pair[h] = T.call_extern("uint32", "mx_four", value[h * 4] * top[0], value[h * 4 + 1] * top[0],
                                            value[h * 4 + 2] * top[0], value[h * 4 + 3] * top[0])
                if row < rows:
                    for v in T.vectorized(VECTOR):
                        y[row, (i * lanes + lane) * VECTOR + v] = out[v]
                    for v in T.vectorized(2):
                        codes[row, (i * lanes + lane) * 2 + v] = pair[v]
                    if lane % GROUP_LANES == 0:
                        scales[row, (i * lanes + lane) // GROUP_LANES] = T.cast(code[0], "uint8")

    return rmsnorm_mxfp8
