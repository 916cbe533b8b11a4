"""Small CUDA plans for the fake driver, and the artifact directories that hold them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from dsv41c.runtime.plan import schema as s
from dsv41c.runtime.plan.codec import encode
from dsv41c.runtime.plan.verify_tables import FEATURE_OF_BODY

SLOTS, PAGES, PAGES_PER_SLOT, BLOCK, COLUMNS = 3, 8, 4, 8, 24
MAX_ROWS, BUCKETS = 16, (1, 4, 8)
WEIGHT = np.arange(1, COLUMNS + 1, dtype=np.float32)
STATE = (s.State("slot_position", "int32", (SLOTS + 1,), 0, 0), s.State("slot_token", "int32", (SLOTS + 1,), 64, -1),
         s.State("page_table", "int32", (SLOTS + 1, PAGES_PER_SLOT), 128, PAGES),
         s.State("counter", "int32", (4,), 192, 5), s.State("wide", "int64", (3,), 256, -7),
         s.State("half", "bfloat16", (5,), 320, 3), s.State("byte", "uint8", (3,), 384, 9),
         s.State("replay_floor", "int32", (SLOTS + 1,), 448, 0),
         s.State("token_ring", "int32", (SLOTS + 1, 3), 512, -1))
POSITION, TOKEN, PAGE_TABLE, COUNTER = range(4)
TOKEN_RING = 8
ATTRIBUTES: dict[str, dict[str, s.Attribute]] = {"row_table": {"block_size": BLOCK},
                                                 "window_attention": {"window_size": 8}}
LADDER = s.Ladder("explicit", "eager", 0, 0, 0)
ROWS_INT = s.Int32Param("rows")
LETTERS = {s.TensorParam: "p", s.ScratchParam: "p", s.Int32Param: "i", s.Int64Param: "l", s.FloatParam: "f",
           s.TensorMapParam: "m"}


def tensors(*indices: int) -> tuple[s.CudaParam, ...]:
    return tuple(s.TensorParam(index) for index in indices)


def number(value: float) -> s.FloatParam:
    return s.FloatParam(value.hex())


@dataclass(frozen=True)
class Start:
    """One CUDA launch of a body, before the digest of its cubin is known."""

    symbol: str
    params: tuple[s.CudaParam, ...]
    grid: tuple[s.Expr, ...] = (s.Binary("ceildiv", "rows", 2), 1, 1)
    block: tuple[int, ...] = (32, 1, 1)
    shared: int = 0

    @property
    def line(self) -> str:
        return f"{self.symbol} {''.join(LETTERS[type(param)] for param in self.params)}"


Node = Start | s.CudaCopy | s.CudaMemset
Body = Sequence[Node] | s.CompositeBody | s.SequenceBody


@dataclass
class CudaPlan:
    """One method `decode` on all rows; values get fresh arena ranges unless an offset is given."""

    target: str = "sm_90a"
    arena: int = 0
    io: int = 0
    values: list[s.Value] = field(default_factory=list)
    kernels: list[tuple[str, Body, s.Expr]] = field(default_factory=list)
    steps: list[s.Step] = field(default_factory=list)
    launches: list[s.Launch] = field(default_factory=list)
    image: bytes | None = None  # of a real device; else the fake driver's

    def value(self, name: str, dtype: str, sizes: tuple[s.Expr, ...], storage: s.Storage,
              strides: tuple[s.Expr, ...] | None = None) -> int:
        row = 1
        for size in sizes[1:]:
            assert isinstance(size, int)
            row *= size
        contiguous = (row, *([1] if len(sizes) == 2 else []))
        pads = "rows" if "T" in sizes[:1] else "none"
        self.values.append(s.Value(name, dtype, sizes, strides or contiguous, storage, pads))
        return len(self.values) - 1

    def buffer(self, name: str, offset: int | None = None) -> int:
        """float32 [T] in the arena."""
        if offset is None:
            offset, self.arena = self.arena, self.arena + 64
        return self.value(name, "float32", ("T",), s.ArenaStorage(offset))

    def half(self, name: str, of: int, second: bool) -> int:
        """A view of 8 of the 16 elements of a buffer of constant size."""
        return self.value(name, "float32", (8,), s.ViewStorage(of, 8 * second), (1,))

    def fixed(self, name: str) -> int:
        self.arena += 64
        return self.value(name, "float32", (16,), s.ArenaStorage(self.arena - 64))

    def room(self, num_bytes: int) -> int | None:
        """Scratch of a launch."""
        if num_bytes == 0:
            return None
        self.arena += num_bytes
        return self.value("room", "uint8", (num_bytes,), s.ArenaStorage(self.arena - num_bytes), (1,))

    def port(self, name: str, dtype: str, columns: int) -> int:
        index = self.value(name, dtype, ("T", columns), s.IoStorage(self.io))
        self.io += -(-MAX_ROWS * columns * 4 // 64) * 64
        return index

    def state(self, index: int) -> int:
        return self.value(STATE[index].name, STATE[index].dtype, STATE[index].sizes, s.StateStorage(index))

    def kernel(self, name: str, body: Node | Body, scratch_bytes: s.Expr = 0) -> int:
        self.kernels.append((name, (body,) if isinstance(body, Node) else body, scratch_bytes))
        return len(self.kernels) - 1

    def launch(self, name: str, body: Node | Body, *arguments: s.Argument,
               scratch: int | None = None, scratch_bytes: s.Expr = 0) -> None:
        kernel = self.kernel(name, body, scratch_bytes)
        self.launches.append(s.Launch(name, kernel, arguments, scratch))

    def end_step(self, break_op: str | None = None) -> None:
        launches = tuple(self.launches)
        self.launches.clear()
        self.steps.append(s.Break(break_op, "as the test wishes", launches) if break_op else s.Segment(launches))

    def cubin(self) -> bytes:
        if self.image is not None:
            return self.image
        lines = [node.line for _, body, _ in self.kernels if not isinstance(body, (s.CompositeBody, s.SequenceBody))
                 for node in body if isinstance(node, Start)]
        return "\n".join(dict.fromkeys(lines)).encode() + b"\0"

    def plan(self, upload: int, logits: int | None = None) -> s.Plan:
        if self.launches:
            self.end_step()
        outputs = () if logits is None else (s.Port("logits", logits, ()),)
        method = s.Method("decode", "rows", "T", BUCKETS, (s.Port("upload", upload, (SLOTS, 0, 0, 5, -1)),), outputs,
                          tuple(self.values), tuple(self.steps), self.arena, LADDER)
        kernels = self._kernels()
        features = tuple(sorted({FEATURE_OF_BODY[type(kernel.body)] for kernel in kernels}))
        memory = s.Memory(576, 0, self.io, self.arena, 576 + self.io + self.arena)
        return s.Plan(1, features, self.target, s.Provenance("0" * 64, {"max_model_len": 28}, "test"),
                      (s.Symbol("T", 1, MAX_ROWS),), memory, (s.Weight("head", "float32", (COLUMNS,)),), STATE, (),
                      kernels, (method,), (s.Flow("decode", ("decode",), "all_rows_output"),), ())

    def _kernels(self) -> tuple[s.Kernel, ...]:
        digest = hashlib.sha256(self.cubin()).hexdigest()
        kernels = []
        for name, body, scratch_bytes in self.kernels:
            if not isinstance(body, (s.CompositeBody, s.SequenceBody)):
                body = s.CudaBody(tuple(
                    s.CudaLaunch(digest, b.symbol, b.params, b.grid, b.block, b.shared) if isinstance(b, Start) else b
                    for b in body))
            kernels.append(s.Kernel(f"dsv41c::{name}", ATTRIBUTES.get(name, {}), body, scratch_bytes))
        return tuple(kernels)


def plus_one() -> s.CompositeBody:
    """in -> in + 1, which the stub provider does whatever the composite says."""
    def arg(index: int) -> s.ArgLocal:
        return s.ArgLocal(index, "float32", ("rows",), (1,))

    return s.CompositeBody((arg(0), arg(1), s.ConstantLocal("float32", s.FloatTag.of(1.0))), (
        s.Call("aten::add", "out", (s.TensorTag(0), s.TensorTag(2), s.IntTag(1), s.MutableTag(1))),))


def toy(
    with_fallback: bool = False, target: str = "sm_90a", big_shared: int = 0, scratch: int = 0, more_arena: int = 0,
    image: bytes | None = None,
) -> tuple[CudaPlan, s.Plan]:
    """logits[r] = (3 * token, plus 1 with a fallback) * weight; `counter` counts runs."""
    p = CudaPlan(target, arena=more_arena, image=image)
    upload, x, y, z = p.port("upload", "int32", 5), p.buffer("x"), p.buffer("y"), p.buffer("z")
    p.launch("row_table", Start("test_rows", (*tensors(0, 1, 2, 3), ROWS_INT, s.Int32Param(PAGES_PER_SLOT),
                                              s.Int32Param(BLOCK))),
             s.In(upload), s.InOut(p.state(POSITION)), s.InOut(p.state(PAGE_TABLE)), s.Out(x))
    p.launch("scale", Start("test_scale", (*tensors(0, 1), ROWS_INT, number(2.0)), shared=big_shared),
             s.In(x), s.Out(y), scratch=p.room(scratch), scratch_bytes=scratch)
    if with_fallback:
        p.launch("plus_one", plus_one(), s.In(y), s.Out(w := p.buffer("w")))
    p.launch("add", Start("test_add", (*tensors(0, 1, 2), s.Int64Param("rows"))),
             s.In(x), s.In(w if with_fallback else y), s.Out(z))
    p.launch("count", Start("test_count", (*tensors(0), s.Int32Param(4)), grid=(1, 1, 1)),
             s.InOut(p.state(COUNTER)))
    head, logits = p.value("head", "float32", (COLUMNS,), s.WeightStorage(0)), p.port("logits", "float32", COLUMNS)
    p.launch("head", Start("test_head", (*tensors(0, 1, 2), ROWS_INT, s.Int32Param(COLUMNS))),
             s.In(z), s.In(head), s.Out(logits))
    return p, p.plan(upload, logits)


def transferred(target: str = "sm_90a", image: bytes | None = None) -> tuple[CudaPlan, s.Plan]:
    """logits[r] = token * weight for the first half of the rows, 0 behind: copied to the scratch and back over what a
    memset left, then read through a tensor map that ends halfway."""
    p = CudaPlan(target, image=image)
    upload, x, y, z = p.port("upload", "int32", 5), p.buffer("x"), p.buffer("y"), p.buffer("z")
    row = s.Binary("*", 4, "rows")
    p.launch("row_table", Start("test_rows", (*tensors(0, 1, 2, 3), ROWS_INT, s.Int32Param(PAGES_PER_SLOT),
                                              s.Int32Param(BLOCK))),
             s.In(upload), s.InOut(p.state(POSITION)), s.InOut(p.state(PAGE_TABLE)), s.Out(x))
    p.launch("copies", (s.CudaMemset(s.TensorParam(1), 255, row), s.CudaCopy(s.ScratchParam(64), s.TensorParam(0), row),
                        s.CudaCopy(s.TensorParam(1), s.ScratchParam(64), row)),
             s.In(x), s.Out(y), scratch=p.room(128), scratch_bytes=128)
    mapped = s.TensorMapParam(s.TensorParam(0), "float32", (s.Binary("ceildiv", "rows", 2),), (), (4,), (1,), "none",
                              "none", "128b", "zero")
    p.launch("mapped", Start("test_mapped", (mapped, s.TensorParam(1), s.Int64Param("rows"))), s.In(y), s.Out(z))
    head, logits = p.value("head", "float32", (COLUMNS,), s.WeightStorage(0)), p.port("logits", "float32", COLUMNS)
    p.launch("head", Start("test_head", (*tensors(0, 1, 2), ROWS_INT, s.Int32Param(COLUMNS))),
             s.In(z), s.In(head), s.Out(logits))
    return p, p.plan(upload, logits)


def write_artifact(directory: Path, built: CudaPlan, plan: s.Plan) -> Path:
    (directory / "kernels").mkdir(parents=True)
    cubin = built.cubin()
    (directory / "kernels" / f"{hashlib.sha256(cubin).hexdigest()}.cubin").write_bytes(cubin)
    name = "model-00001-of-00001.safetensors"
    save_file({"head": WEIGHT}, directory / name)
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"head": name}}))
    (directory / "plan.json").write_bytes(encode(plan))
    files = {path.relative_to(directory).as_posix(): {
        "bytes": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        for path in sorted(directory.rglob("*")) if path.is_file()}
    manifest = {"format_version": 1, "producer": "test", "target": plan.target, "plan_only": False,
                "required_features": list(plan.required_features), "model_digest": plan.provenance.model_digest,
                "options": {}, "options_digest": "", "plan_digest": files["plan.json"]["sha256"],
                "header_digest": None, "files": files}
    (directory / "dsv41c.json").write_text(json.dumps(manifest))
    return directory
