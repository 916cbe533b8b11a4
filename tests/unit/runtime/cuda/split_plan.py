"""A CUDA plan whose decoder is split: tokens go through two bridges, and every run of the decoder is counted."""

from __future__ import annotations

from dataclasses import dataclass, field

from dsv41c.runtime.plan import schema as s
from tests.unit.runtime.cuda.cuda_plan import (
    BLOCK,
    COLUMNS,
    COUNTER,
    MAX_ROWS,
    PAGE_TABLE,
    PAGES_PER_SLOT,
    POSITION,
    ROWS_INT,
    SLOTS,
    STATE,
    CudaPlan,
    Start,
    tensors,
)

TOP = 3
DECODER_BUCKETS = (1, TOP)
ROWS_BRIDGE, KEPT_BRIDGE = 0, 1
BRIDGES = (s.Bridge("tokens", "float32", (MAX_ROWS,), 0), s.Bridge("kept", "float32", (MAX_ROWS,), 64))
IO_BYTES, LOGITS_AT = 2048, 512


@dataclass
class _Method:
    """Values and launches of one method over its symbol; kernels go into the common table."""

    table: CudaPlan
    symbol: str
    values: list[s.Value] = field(default_factory=list)
    launches: list[s.Launch] = field(default_factory=list)

    def value(self, name: str, dtype: str, sizes: tuple[s.Expr, ...], storage: s.Storage) -> int:
        strides = (sizes[1], 1) if len(sizes) == 2 else (1,)
        pads = "rows" if self.symbol in sizes[:1] else "none"
        self.values.append(s.Value(name, dtype, sizes, strides, storage, pads))
        return len(self.values) - 1

    def state(self, index: int) -> int:
        return self.value(STATE[index].name, STATE[index].dtype, STATE[index].sizes, s.StateStorage(index))

    def launch(self, name: str, start: Start, *arguments: s.Argument) -> None:
        self.launches.append(s.Launch(name, self.table.kernel(name, start), arguments, None))

    def take(self, bridge: int, list_name: str, list_at: int, out: s.Storage) -> tuple[s.Port, int]:
        whole = self.value(f"{list_name}.from", "float32", (MAX_ROWS,), s.BridgeStorage(bridge))
        index = self.value(list_name, "int32", (self.symbol,), s.IoStorage(list_at))
        taken = self.value(f"{list_name}.taken", "float32", (self.symbol,), out)
        self.launch("take", Start("test_take", (*tensors(0, 1, 2), s.Int64Param("rows"))),
                    s.In(whole), s.In(index), s.Out(taken))
        return s.Port(list_name, index, (-1,)), taken

    def finish(self, name: str, axis: str, port: s.Port, outputs: tuple[s.Port, ...], buckets: tuple[int, ...],
               arena: int, above: str = "eager") -> s.Method:
        return s.Method(name, axis, self.symbol, buckets, (port,), outputs, tuple(self.values),
                        (s.Segment(tuple(self.launches)),), arena, s.Ladder("explicit", above, 0, 0, 0))


def split_toy() -> tuple[CudaPlan, s.Plan]:
    """logits[i] = token of row logit_rows[i] * weight; `counter` counts runs of the decoder."""
    table = CudaPlan()
    e = _Method(table, "T")
    upload = e.value("upload", "int32", ("T", 5), s.IoStorage(0))
    x = e.value("x", "float32", ("T",), s.BridgeStorage(ROWS_BRIDGE))
    e.launch("row_table", Start("test_rows", (*tensors(0, 1, 2, 3), ROWS_INT, s.Int32Param(PAGES_PER_SLOT),
                                              s.Int32Param(BLOCK))),
             s.In(upload), s.InOut(e.state(POSITION)), s.InOut(e.state(PAGE_TABLE)), s.Out(x))
    encoder = e.finish("encoder", "rows", s.Port("upload", upload, (SLOTS, 0, 0, 5, -1)), (), (MAX_ROWS,), 0)
    d = _Method(table, "R")
    keep, _ = d.take(ROWS_BRIDGE, "keep_rows", 320, s.BridgeStorage(KEPT_BRIDGE))
    d.launch("count", Start("test_count", (*tensors(0), s.Int32Param(4)), grid=(1, 1, 1)), s.InOut(d.state(COUNTER)))
    decoder = d.finish("decoder", "kept_rows", keep, (), DECODER_BUCKETS, 0, "split")
    h = _Method(table, "L")
    wanted, taken = h.take(KEPT_BRIDGE, "logit_rows", 384, s.ArenaStorage(0))
    weight = h.value("head", "float32", (COLUMNS,), s.WeightStorage(0))
    logits = h.value("logits", "float32", ("L", COLUMNS), s.IoStorage(LOGITS_AT))
    h.launch("head", Start("test_head", (*tensors(0, 1, 2), ROWS_INT, s.Int32Param(COLUMNS))),
             s.In(taken), s.In(weight), s.Out(logits))
    head = h.finish("head", "output_rows", wanted, (s.Port("logits", logits, ()),), (1, 8, MAX_ROWS), 64)
    return table, _plan(table, (encoder, decoder, head))


def _plan(table: CudaPlan, methods: tuple[s.Method, ...]) -> s.Plan:
    kernels = table._kernels()
    memory = s.Memory(576, 128, IO_BYTES, 64, 576 + 128 + IO_BYTES + 64)
    return s.Plan(1, ("cuda_cubin",), table.target, s.Provenance("0" * 64, {"max_model_len": 28}, "test"),
                  tuple(s.Symbol(m.symbol, 1, MAX_ROWS) for m in methods), memory,
                  (s.Weight("head", "float32", (COLUMNS,)),), STATE, BRIDGES, kernels, methods,
                  (s.Flow("prefill", tuple(m.name for m in methods), "nothing"),), ())
