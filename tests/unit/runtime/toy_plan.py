"""A hand-written plan of a toy model, small enough to read: embed, rms_norm, linear, greedy token.

Methods: `decode` on all rows; `encoder`, `decoder`, `head` with bridges between them. The composites use an
argument view, temporaries, a constant and a broadcast view; the native kernels are the product's own.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from dsv41c.runtime.plan import schema as s

SLOTS, PAGES, PAGES_PER_SLOT, BLOCK, VOCAB, WIDTH = 3, 8, 4, 8, 24, 16
MAX_ROWS, BUCKETS = 16, (1, 4, 8)
ROW_BYTES = 32
LADDER = s.Ladder("explicit", "eager", 0, 0, 0)
PAD_ROW = (SLOTS, 0, 0, 5, -1)
EPS = 2.0**-20

WEIGHTS = (s.Weight("embed", "float32", (VOCAB, WIDTH)), s.Weight("head", "float32", (VOCAB, WIDTH)),
           s.Weight("norm", "float32", (WIDTH,)))
STATE = (s.State("slot_position", "int32", (SLOTS + 1,), 0, 0),
         s.State("slot_token", "int32", (SLOTS + 1,), 64, -1),
         s.State("page_table", "int32", (SLOTS + 1, PAGES_PER_SLOT), 128, PAGES),
         s.State("replay_floor", "int32", (SLOTS + 1,), 192, 0))
BRIDGES = (s.Bridge("rows", "int32", (MAX_ROWS, 8), 0), s.Bridge("x", "float32", (MAX_ROWS, WIDTH), 512),
           s.Bridge("kept_rows", "int32", (MAX_ROWS, 8), 1536),
           s.Bridge("kept_x", "float32", (MAX_ROWS, WIDTH), 2048))


def contiguous(sizes: tuple[s.Expr, ...]) -> tuple[s.Expr, ...]:
    strides: list[s.Expr] = []
    step = 1
    for size in reversed(sizes[1:]):
        strides.append(step)
        assert isinstance(size, int)
        step *= size
    return (*reversed([*strides, step]),)


def arg(index: int, dtype: str, *sizes: s.Expr) -> s.ArgLocal:
    return s.ArgLocal(index, dtype, sizes, contiguous(sizes))


def temp(offset: s.Expr, dtype: str, *sizes: s.Expr) -> s.TempLocal:
    return s.TempLocal(dtype, sizes, contiguous(sizes), offset)


def times(a: int, b: s.Expr) -> s.Expr:
    return s.Binary("*", a, b)


def out_call(op: str, *args: s.CallArgument) -> s.Call:
    return s.Call(f"aten::{op}", "out", args)


def embed_body() -> s.CompositeBody:
    """rows, weight -> x: the token column of the row table selects rows of the weight."""
    return s.CompositeBody(
        (arg(0, "int32", "rows", 8), arg(1, "float32", VOCAB, WIDTH), arg(2, "float32", "rows", WIDTH),
         s.ViewLocal(0, "int32", ("rows",), (8,), 5)),
        (out_call("index_select", s.TensorTag(1), s.IntTag(0), s.TensorTag(3), s.MutableTag(2)),))


def take_body(capacity: int, out_rows: s.Expr) -> s.CompositeBody:
    """x, index -> x[max(index, 0)]."""
    return s.CompositeBody(
        (arg(0, "float32", capacity, WIDTH), arg(1, "int32", out_rows), arg(2, "float32", out_rows, WIDTH),
         temp(0, "int32", out_rows)),
        (out_call("clamp", s.TensorTag(1), s.IntTag(0), s.NoneTag(), s.MutableTag(3)),
         out_call("index_select", s.TensorTag(0), s.IntTag(0), s.TensorTag(3), s.MutableTag(2))))


NORM_SCRATCH = s.Binary("+", times(WIDTH * 4, "rows"), times(64, s.Binary("ceildiv", "rows", 16)))


def norm_body() -> s.CompositeBody:
    """x, weight -> x * rsqrt(mean(x * x) + eps) * weight."""
    return s.CompositeBody(
        (arg(0, "float32", "rows", WIDTH), arg(1, "float32", WIDTH), arg(2, "float32", "rows", WIDTH),
         temp(0, "float32", "rows", WIDTH), temp(times(WIDTH * 4, "rows"), "float32", "rows", 1),
         s.ConstantLocal("float32", s.FloatTag.of(EPS)),
         s.ViewLocal(1, "float32", ("rows", WIDTH), (0, 1), 0)),
        (out_call("mul", s.TensorTag(0), s.TensorTag(0), s.MutableTag(3)),
         out_call("mean", s.TensorTag(3), s.IntListTag((-1,)), s.BoolTag(True), s.NoneTag(), s.MutableTag(4)),
         out_call("add", s.TensorTag(4), s.TensorTag(5), s.IntTag(1), s.MutableTag(4)),
         out_call("rsqrt", s.TensorTag(4), s.MutableTag(4)),
         out_call("mul", s.TensorTag(0), s.TensorTag(4), s.MutableTag(3)),
         out_call("mul", s.TensorTag(3), s.TensorTag(6), s.MutableTag(2))))


LINEAR_SCRATCH = times(4 * 64, s.Binary("+", "rows", 64))
ROW_TABLE, EMBED, TAKE_TABLE, TAKE, NORM, LINEAR, GREEDY = range(7)


def kernels() -> tuple[s.Kernel, ...]:
    def native(entry: str, scratch: s.Expr = 0, **attributes: s.Attribute) -> s.Kernel:
        return s.Kernel(f"dsv41c::{entry}", attributes, s.NativeBody(entry), scratch)

    return (native("row_table", block_size=BLOCK), s.Kernel("dsv41c::embed", {}, embed_body(), 0),
            native("take_row_table", num_slots=SLOTS, boundary="suffix"),
            s.Kernel("dsv41c::take_rows", {}, take_body(MAX_ROWS, "rows"), times(4, "rows")),
            s.Kernel("dsv41c::rms_norm", {}, norm_body(), NORM_SCRATCH),
            native("linear", LINEAR_SCRATCH, dtype=s.DtypeTag("float32")), native("greedy_token"))


def round_up(size: int) -> int:
    return -(-size // 64) * 64


@dataclass
class MethodBuilder:
    """Adds values one after another; arena values get fresh ranges, nothing is reused."""

    symbol: str
    io: int
    arena: int = 0
    values: list[s.Value] = field(default_factory=list)
    launches: list[s.Launch] = field(default_factory=list)

    def value(self, name: str, dtype: str, sizes: tuple[s.Expr, ...], storage: s.Storage) -> int:
        pads = ("valid" if dtype == "int32" else "rows") if self.symbol in sizes[:1] else "none"
        self.values.append(s.Value(name, dtype, sizes, contiguous(sizes), storage, pads))
        return len(self.values) - 1

    def rows_bytes(self, sizes: tuple[s.Expr, ...]) -> int:
        count = MAX_ROWS
        for size in sizes[1:]:
            assert isinstance(size, int)
            count *= size
        return round_up(count * 4)

    def arena_value(self, name: str, dtype: str, *rest: int) -> int:
        sizes: tuple[s.Expr, ...] = (self.symbol, *rest)
        index = self.value(name, dtype, sizes, s.ArenaStorage(self.arena))
        self.arena += self.rows_bytes(sizes)
        return index

    def io_value(self, name: str, dtype: str, *rest: int) -> int:
        sizes: tuple[s.Expr, ...] = (self.symbol, *rest)
        index = self.value(name, dtype, sizes, s.IoStorage(self.io))
        self.io += self.rows_bytes(sizes)
        return index

    def scratch(self, name: str, size: s.Expr, bytes_at_bound: int) -> int:
        index = self.value(name, "uint8", (size,), s.ArenaStorage(self.arena))
        self.values[index] = s.Value(name, "uint8", (size,), (1,), s.ArenaStorage(self.arena), "rows")
        self.arena += round_up(bytes_at_bound)
        return index

    def weight(self, index: int) -> int:
        entry = WEIGHTS[index]
        return self.value(entry.name, entry.dtype, entry.sizes, s.WeightStorage(index))

    def state(self, index: int) -> int:
        entry = STATE[index]
        return self.value(entry.name, entry.dtype, entry.sizes, s.StateStorage(index))

    def bridge(self, index: int, written: bool) -> int:
        entry = BRIDGES[index]
        sizes: tuple[s.Expr, ...] = (self.symbol, *entry.sizes[1:]) if written else entry.sizes
        return self.value(entry.name, entry.dtype, sizes, s.BridgeStorage(index))

    def launch(self, name: str, kernel: int, *tensors: s.Argument, scratch: int | None = None) -> None:
        self.launches.append(s.Launch(name, kernel, tensors, scratch))

    def finish(
        self, name: str, axis: str, inputs: tuple[s.Port, ...], outputs: tuple[s.Port, ...]
    ) -> s.Method:
        return s.Method(name, axis, self.symbol, BUCKETS, inputs, outputs, tuple(self.values),
                        (s.Segment(tuple(self.launches)),), self.arena, LADDER)


def symbolic(expr: s.Expr, symbol: str) -> s.Expr:
    """A kernel expression over `rows` as a method writes it."""
    if isinstance(expr, s.Binary):
        return s.Binary(expr.op, symbolic(expr.a, symbol), symbolic(expr.b, symbol))
    return symbol if expr == "rows" else expr


def add_row_table(b: MethodBuilder, rows: int) -> s.Port:
    upload = b.io_value("upload", "int32", 5)
    b.launch("row_table", ROW_TABLE, s.In(upload), s.In(b.state(1)), s.InOut(b.state(0)), s.InOut(b.state(2)),
             s.InOut(b.state(3)), s.Out(rows))
    return s.Port("upload", upload, PAD_ROW)


def add_head(b: MethodBuilder, rows: int, x: int) -> tuple[s.Port, ...]:
    normed = b.arena_value("normed", "float32", WIDTH)
    scratch = b.scratch("norm.scratch", symbolic(NORM_SCRATCH, b.symbol), MAX_ROWS * (WIDTH + 1) * 4 + 64)
    b.launch("norm", NORM, s.In(x), s.In(b.weight(2)), s.Out(normed), scratch=scratch)
    logits, tokens = b.io_value("logits", "float32", VOCAB), b.io_value("tokens", "int32")
    scratch = b.scratch("linear.scratch", symbolic(LINEAR_SCRATCH, b.symbol), 256 * (MAX_ROWS + 64))
    b.launch("head", LINEAR, s.In(normed), s.In(b.weight(1)), s.Absent(), s.Out(logits), scratch=scratch)
    b.launch("greedy", GREEDY, s.In(logits), s.In(rows), s.InOut(b.state(1)), s.Out(tokens))
    return s.Port("logits", logits, ()), s.Port("tokens", tokens, ())


def decode_method() -> s.Method:
    b = MethodBuilder("T", 0)
    rows, x = b.arena_value("rows", "int32", 8), b.arena_value("x", "float32", WIDTH)
    upload = add_row_table(b, rows)
    b.launch("embed", EMBED, s.In(rows), s.In(b.weight(0)), s.Out(x))
    outputs = add_head(b, rows, x)
    return b.finish("decode", "rows", (upload,), outputs)


def split_methods() -> tuple[s.Method, ...]:
    """encoder, decoder and head; io ranges of one flow are disjoint."""
    b = MethodBuilder("E", 0)
    rows, x = b.bridge(0, True), b.bridge(1, True)
    upload = add_row_table(b, rows)
    b.launch("embed", EMBED, s.In(rows), s.In(b.weight(0)), s.Out(x))
    encoder = b.finish("encoder", "rows", (upload,), ())
    d = MethodBuilder("R", b.io)
    keep = add_take(d, "keep_rows", 0, 1, d.bridge(2, True), d.bridge(3, True))
    decoder = d.finish("decoder", "kept_rows", (keep,), ())
    h = MethodBuilder("L", d.io)
    rows, x = h.arena_value("rows", "int32", 8), h.arena_value("x", "float32", WIDTH)
    wanted = add_take(h, "logit_rows", 2, 3, rows, x)
    outputs = add_head(h, rows, x)
    return encoder, decoder, h.finish("head", "output_rows", (wanted,), outputs)


def add_take(b: MethodBuilder, name: str, rows_bridge: int, x_bridge: int, rows: int, x: int) -> s.Port:
    index = b.io_value(name, "int32")
    b.launch("take_row_table", TAKE_TABLE, s.In(b.bridge(rows_bridge, False)), s.In(index), s.Out(rows))
    scratch = b.scratch("take.scratch", times(4, b.symbol), 4 * MAX_ROWS)
    b.launch("take_rows", TAKE, s.In(b.bridge(x_bridge, False)), s.In(index), s.Out(x), scratch=scratch)
    return s.Port(name, index, (-1,))


def toy_plan(above: str = "eager") -> s.Plan:
    """`above`: what the decoder does with more rows than its largest bucket."""
    methods = (decode_method(), *split_methods())
    methods = tuple(replace(m, ladder=replace(LADDER, above=above)) if m.name == "decoder" else m for m in methods)
    arena = max(m.arena_bytes for m in methods)
    state, bridges, io = 256, 3072, 8192
    return s.Plan(
        1, ("aten_composites", "native_cpu"), "cpu", s.Provenance("0" * 64, {"max_model_len": 28}, "test"),
        tuple(s.Symbol(name, 1, MAX_ROWS) for name in "TERL"),
        s.Memory(state, bridges, io, arena, state + bridges + io + arena), WEIGHTS, STATE, BRIDGES, kernels(),
        methods, (s.Flow("decode", ("decode",), "all_rows_output"),
                  s.Flow("prefill", ("encoder", "decoder", "head"), "nothing")), ())
