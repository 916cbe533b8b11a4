"""Small valid plans: one fixed example that uses every part of the schema, and a strategy that varies it."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from dsv41c.runtime.plan import schema as s

SLOTS = 3
UPLOAD_COLUMNS = 5


@dataclass(frozen=True)
class Recipe:
    """Shape of the encoder's launch chain: launch i writes value i and reads the listed earlier values."""

    hi: int
    columns: int
    reads: tuple[tuple[int, ...], ...]
    composite: tuple[bool, ...]
    buckets: tuple[int, ...]
    break_after: int
    ladder: s.Ladder


EXAMPLE_LADDER = s.Ladder("histogram", "eager", 3_050_000, 8_000, 3_000_000)
EXAMPLE = Recipe(hi=8, columns=4, reads=((), (0,), (1,), (0, 2)), composite=(False, True, True, False),
                 buckets=(1, 4, 8), break_after=2, ladder=EXAMPLE_LADDER)


def example_plan() -> s.Plan:
    return build_plan(EXAMPLE)


@st.composite
def recipes(draw: st.DrawFn) -> Recipe:
    hi = draw(st.integers(1, 20))
    count = draw(st.integers(1, 8))
    reads = tuple(tuple(draw(st.lists(st.integers(0, i - 1), max_size=2, unique=True))) if i else ()
                  for i in range(count))
    composite = tuple(draw(st.booleans()) and len(read) == 1 for read in reads)
    buckets = draw(st.lists(st.integers(1, hi), max_size=4, unique=True))
    columns, break_after = draw(st.integers(2, 9)), draw(st.integers(0, count))
    costs = st.integers(0, s.MAX_COST_NS)
    ladder = s.Ladder(draw(st.sampled_from(s.BUCKET_POLICIES)), "eager", draw(costs), draw(costs), draw(costs))
    return Recipe(hi, columns, reads, composite, tuple(sorted(buckets)), break_after, ladder)


def plans() -> st.SearchStrategy[s.Plan]:
    return recipes().map(build_plan)


def up(size: int) -> int:
    return -(-size // s.ALIGNMENT) * s.ALIGNMENT


def expressions(symbols: tuple[str, ...] = ("T", "R")) -> st.SearchStrategy[s.Expr]:
    leaves: st.SearchStrategy[s.Expr] = st.one_of(
        st.integers(-20, 20), st.integers(-(2**63), 2**63 - 1), st.sampled_from(symbols))
    operators = st.sampled_from(["+", "-", "*", "floordiv", "ceildiv", "min", "max"])
    return st.recursive(leaves, lambda inner: st.builds(s.Binary, operators, inner, inner), max_leaves=12)


def build_plan(recipe: Recipe) -> s.Plan:
    row = 4 * recipe.columns
    encoder, decoder = _encoder(recipe), _decoder(recipe)
    arena = max(encoder.arena_bytes, decoder.arena_bytes)
    state_bytes, bridge_bytes = 2 * up(SLOTS * 4), up(recipe.hi * row)
    io_bytes = _upload_bytes(recipe) + up(recipe.hi * 4) + up(recipe.hi * row)
    total = state_bytes + bridge_bytes + io_bytes + arena
    return s.Plan(
        version=s.PLAN_VERSION, required_features=("aten_composites", "native_cpu"), target="cpu",
        provenance=s.Provenance("ab" * 32, {"dtype": "float32", "slots": SLOTS, "quantize": True}, "tests"),
        symbols=(s.Symbol("T", 1, recipe.hi), s.Symbol("R", 1, recipe.hi)),
        memory=s.Memory(state_bytes, bridge_bytes, io_bytes, arena, total),
        weights=(s.Weight("norm.weight", "float32", (recipe.columns,)),),
        state=(s.State("position", "int32", (SLOTS,), 0, 0), s.State("token", "int32", (SLOTS,), 64, -1)),
        bridges=(s.Bridge("kept", "float32", (recipe.hi, recipe.columns), 0),),
        kernels=(_mix_kernel(), _double_kernel(recipe.columns), _take_kernel()),
        methods=(encoder, decoder),
        flows=(s.Flow("chunk", ("encoder", "decoder"), "nothing"),),
        checks=(s.Check((1, 2, 3), (4,)),),
    )


def _mix_kernel() -> s.Kernel:
    attributes: dict[str, s.Attribute] = {
        "eps": s.FloatTag.of(1e-6), "streams": 4, "exact": True, "mode": "plain",
        "dtype": s.DtypeTag("float32")}
    return s.Kernel("dsv41c::mix", attributes, s.NativeBody("mix"), s.Binary("*", s.ROWS, 64))


def _take_kernel() -> s.Kernel:
    return s.Kernel("dsv41c::take", {}, s.NativeBody("take"), 0)


def _double_kernel(columns: int) -> s.Kernel:
    """out = x * 2, then + x, through one temporary, a view of it and a constant."""
    sizes, strides = ("rows", columns), (columns, 1)
    rows_bytes = s.Binary("*", "rows", 4 * columns)
    scratch = s.Binary("*", 64, s.Binary("ceildiv", rows_bytes, 64))
    locals_: tuple[s.Local, ...] = (
        s.ArgLocal(0, "float32", sizes, strides), s.ArgLocal(1, "float32", sizes, strides),
        s.TempLocal("float32", sizes, strides, 0), s.ConstantLocal("float32", s.FloatTag.of(2.0)),
        s.ViewLocal(2, "float32", (s.Binary("*", "rows", columns),), (1,), 0),
        s.ViewLocal(1, "float32", (s.Binary("*", "rows", columns),), (1,), 0),
        s.ConstantLocal("int64", 3),
    )
    calls = (
        s.Call("aten::mul", "out", (s.TensorTag(0), s.TensorTag(3), s.MutableTag(2))),
        s.Call("aten::cat", "out", (s.TensorListTag((4,)), s.IntTag(0), s.MutableTag(5))),
        s.Call("aten::sum", "out", (s.TensorTag(1), s.IntListTag((1, "rows")), s.BoolTag(False), s.NoneTag(),
                                    s.DtypeTag("float32"), s.FloatTag.of(-0.5), s.StringTag("x"),
                                    s.MutableTag(2))),
    )
    return s.Kernel("dsv41c::double", {}, s.CompositeBody(locals_, calls), scratch)


def _upload_bytes(recipe: Recipe) -> int:
    return up(recipe.hi * UPLOAD_COLUMNS * 4)


def _encoder(recipe: Recipe) -> s.Method:
    """upload -> chain of arena values -> bridge; every launch has its own scratch."""
    sizes, strides = ("T", recipe.columns), (recipe.columns, 1)
    values = [
        s.Value("upload", "int32", ("T", UPLOAD_COLUMNS), (UPLOAD_COLUMNS, 1), s.IoStorage(0), "valid"),
        s.Value("norm.weight", "float32", (recipe.columns,), (1,), s.WeightStorage(0), "none"),
        s.Value("position", "int32", (SLOTS,), (1,), s.StateStorage(0), "none"),
        s.Value("kept", "float32", sizes, strides, s.BridgeStorage(0), "rows"),
    ]
    count = len(recipe.reads)
    last = [max([i, *(j for j, reads in enumerate(recipe.reads) if i in reads)]) for i in range(count)]
    last[-1] = count
    slots = _slots(last)
    row_bytes = up(recipe.hi * recipe.columns * 4)
    values += [s.Value(f"v{i}", "float32", sizes, strides, s.ArenaStorage(slots[i] * row_bytes), "rows")
               for i in range(count)]
    scratch_at = (max(slots) + 1) * row_bytes
    scratch_bytes = max(64 * recipe.hi, row_bytes)
    values.append(s.Value("scratch", "uint8", (s.Binary("*", "T", scratch_bytes),), (1,),
                          s.ArenaStorage(scratch_at), "rows"))
    values.append(s.Value("upload.flat", "int32", (s.Binary("*", "T", UPLOAD_COLUMNS),), (1,),
                          s.ViewStorage(0, 0), "valid"))
    scratch, flat = len(values) - 2, len(values) - 1
    launches = [_launch(i, reads, recipe.composite[i], scratch, flat) for i, reads in enumerate(recipe.reads)]
    launches.append(s.Launch("keep", 1, (s.In(3 + count), s.Out(3)), scratch))
    cut = recipe.break_after
    steps: tuple[s.Step, ...] = (s.Segment(tuple(launches[:cut])),
                                 s.Break("dsv41c::mix", "too large", tuple(launches[cut:])))
    upload = s.Port("upload", 0, (SLOTS - 1, 0, 0, 5, -1))
    return s.Method("encoder", "rows", "T", recipe.buckets, (upload,), (), tuple(values), steps,
                    scratch_at + scratch_bytes * recipe.hi, recipe.ladder)


def _launch(index: int, reads: tuple[int, ...], composite: bool, scratch: int, flat: int) -> s.Launch:
    inputs = tuple(s.In(4 + read) for read in reads)
    if composite:
        return s.Launch(f"double.{index}", 1, (*inputs, s.Out(4 + index)), scratch)
    tensors = (s.In(1), s.InOut(2), s.Absent(), s.In(flat), *inputs, s.Out(4 + index))
    return s.Launch(f"mix.{index}", 0, tensors, scratch)


def _slots(last: list[int]) -> list[int]:
    """Arena slot of each value: the lowest that is free from its launch on."""
    slots: list[int] = []
    for launch in range(len(last)):
        busy = {slots[i] for i in range(launch) if last[i] >= launch}
        slots.append(next(slot for slot in range(len(last)) if slot not in busy))
    return slots


def _decoder(recipe: Recipe) -> s.Method:
    base = _upload_bytes(recipe)
    row_bytes = up(recipe.hi * recipe.columns * 4)
    sizes, strides = ("R", recipe.columns), (recipe.columns, 1)
    values = (
        s.Value("kept", "float32", (recipe.hi, recipe.columns), strides, s.BridgeStorage(0), "none"),
        s.Value("logit_rows", "int32", ("R",), (1,), s.IoStorage(base), "valid"),
        s.Value("taken", "float32", sizes, strides, s.ArenaStorage(0), "rows"),
        s.Value("scratch", "uint8", (s.Binary("*", "R", row_bytes),), (1,), s.ArenaStorage(row_bytes),
                "rows"),
        s.Value("logits", "float32", sizes, strides, s.IoStorage(base + up(recipe.hi * 4)), "rows"),
    )
    launches = (s.Launch("take", 2, (s.In(0), s.In(1), s.Out(2)), None),
                s.Launch("double", 1, (s.In(2), s.Out(4)), 3))
    return s.Method("decoder", "output_rows", "R", (1, recipe.hi) if recipe.hi > 1 else (1,),
                    (s.Port("logit_rows", 1, (-1,)),), (s.Port("logits", 4, ()),), values,
                    (s.Segment(launches),), row_bytes + row_bytes * recipe.hi, EXAMPLE_LADDER)
