"""TileLang builder of embed_expand: the embedding row in every stream and a one-hot alpha; unknown ids give zeros."""

from typing import Any

VECTOR = 8
TOKEN, ROW_COLUMNS = 5, 8


def build(hidden: int, vocabulary: int, streams: int, threads: int = 128) -> Any:
    """The prim_func for a bf16 table and bf16 streams; one block a row."""
    import tilelang.language as T

    vectors = hidden // VECTOR
    rows = T.dynamic("rows")
    bf16, f32 = "bfloat16", "float32"

    @T.prim_func
    def embed_expand(
        table: T.Tensor((rows, ROW_COLUMNS), "int32"), weight: T.Tensor((vocabulary, hidden), bf16),
        expanded: T.Tensor((rows, streams, hidden), bf16), alpha: T.Tensor((rows, streams), f32),
    ):
        with T.Kernel(rows, threads=threads) as row:
            held = T.alloc_local((VECTOR,), bf16)
            thread = T.get_thread_binding(0)
            token = table[row, TOKEN]
            inside = T.max(0, T.min(token, vocabulary - 1))
            if thread < streams:
                alpha[row, thread] = T.if_then_else(thread == 0, 1.0, 0.0)
            for i in T.serial(T.ceildiv(vectors, threads)):
                if i * threads + thread < vectors:
                    if inside == token:
                        for v in T.vectorized(VECTOR):
                            held[v] = weight[inside, (i * threads + thread) * VECTOR + v]
                    else:
                        for v in T.vectorized(VECTOR):
                            held[v] = T.cast(0.0, bf16)
                    for s in T.unroll(streams):
                        for v in T.vectorized(VECTOR):
                            expanded[row, s, (i * threads + thread) * VECTOR + v] = held[v]

    return embed_expand
