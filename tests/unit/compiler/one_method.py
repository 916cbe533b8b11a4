"""A one-method plan for the CPU from calls of declared ops: one embedded row for each row of the upload."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from dsv41c.compiler.affine import PROBE_ROWS, contiguous_strides, fit
from dsv41c.compiler.kernel_table import KernelTable
from dsv41c.compiler.ops.spec import OpSpec
from dsv41c.compiler.tensor_shape import TensorShape
from dsv41c.runtime.plan import schema as s
from dsv41c.runtime.plan.codec import encode
from dsv41c.runtime.plan.expr import evaluate
from tests.unit.runtime.toy_artifact import write_manifest
from tests.unit.runtime.toy_plan import BLOCK, PAD_ROW, STATE, symbolic

MAX_ROWS, BUCKETS, VOCAB = 9, (1, 4, 8), 16
FEATURES = {s.NativeBody: "native_cpu", s.CompositeBody: "aten_composites", s.SequenceBody: "kernel_sequences"}


@dataclass(frozen=True)
class Handle:
    """A value of the plan, as far as a composition may look at it."""

    owner: OneMethod
    index: int
    shape: tuple[Any, ...]
    dtype: torch.dtype

    def view(self, *sizes: Any) -> Handle:
        assert sizes[0] == -1
        return self.owner.add_view(self, ("rows", *sizes[1:]))

    def plan_shape(self) -> TensorShape:
        return TensorShape(self.dtype, self.shape)


@dataclass
class OneMethod:
    """Arena values get fresh ranges, so that nothing is shared by chance."""

    ops: Mapping[str, OpSpec]
    weights: Mapping[str, torch.Tensor]
    values: list[s.Value] = field(default_factory=list)
    launches: list[s.Launch] = field(default_factory=list)
    arena: int = 0
    io: int = 0
    x: Handle = field(init=False)

    def __post_init__(self) -> None:
        self.table = KernelTable(self.ops)
        upload = self._value("upload", torch.int32, ("rows", 5), s.IoStorage(0))
        self.io = -(-MAX_ROWS * 5 * 4 // 64) * 64
        rows = self._arena("rows", torch.int32, ("rows", 8))
        state = [self._value(e.name, torch.int32, e.sizes, s.StateStorage(i)).index for i, e in enumerate(STATE)]
        kernel = self.table.find("row_table", [upload.plan_shape(), *(TensorShape(torch.int32, STATE[i].sizes)
                                                                      for i in (1, 0, 2, 3)), BLOCK])
        self.launches.append(s.Launch("row_table", kernel, (s.In(upload.index), s.In(state[1]), s.InOut(state[0]),
                                                            s.InOut(state[2]), s.InOut(state[3]),
                                                            s.Out(rows.index)), None))
        embedded = self.call("embed_expand", rows, self.weight("embed"), 1, torch.float32)
        self.x = self.add_view(embedded[0], ("rows", self.weights["embed"].shape[1]))

    def weight(self, name: str) -> Handle:
        tensor = self.weights[name]
        storage = s.WeightStorage(list(self.weights).index(name))
        return self._value(name, tensor.dtype, tuple(tensor.shape), storage)

    def add_view(self, base: Handle, sizes: tuple[s.Expr, ...]) -> Handle:
        return self._value("view", base.dtype, sizes, s.ViewStorage(base.index, 0))

    def call(self, op: str, *args: Any, outputs_in_io: bool = False) -> Any:
        """One launch. Returns what the op returns, as handles."""
        spec = self.ops[op]
        shapes = [a.plan_shape() if isinstance(a, Handle) else a for a in args]
        kernel = self.table.find(op, shapes)
        probes = [spec.fake(*(a.meta(n) if isinstance(a, TensorShape) else a for a in shapes)) for n in PROBE_ROWS]
        many = isinstance(probes[0], tuple)
        flat = [p if many else (p,) for p in probes]
        make = self._io if outputs_in_io else self._arena
        outs = [make(f"{op}.{i}", t.dtype, tuple(fit([f[i].shape[d] for f in flat], "rows") for d in range(t.dim())))
                for i, t in enumerate(flat[0])]
        tensors: list[s.Argument] = []
        for declared, value in zip(spec.parsed().arguments, args, strict=True):
            if isinstance(value, Handle):
                tensors.append(s.In(value.index))
            elif "Tensor" in str(declared.type):
                tensors.append(s.Absent())
        self.launches.append(s.Launch(f"{op}_{len(self.launches)}", kernel,
                                      (*tensors, *(s.Out(o.index) for o in outs)), self._scratch(kernel)))
        return tuple(outs) if many else outs[0]

    def _scratch(self, kernel: int) -> int | None:
        needed = self.table.kernels[kernel].scratch_bytes
        return None if needed == 0 else self._arena("scratch", torch.uint8, (needed,)).index

    def _arena(self, name: str, dtype: torch.dtype, sizes: tuple[s.Expr, ...]) -> Handle:
        handle = self._value(name, dtype, sizes, s.ArenaStorage(self.arena))
        self.arena += self._room(handle)
        return handle

    def _io(self, name: str, dtype: torch.dtype, sizes: tuple[s.Expr, ...]) -> Handle:
        handle = self._value(name, dtype, sizes, s.IoStorage(self.io))
        self.io += self._room(handle)
        return handle

    def _room(self, handle: Handle) -> int:
        count = handle.dtype.itemsize
        for size in handle.shape:
            count *= evaluate(size, {"rows": MAX_ROWS})
        return -(-count // 64) * 64

    def _value(self, name: str, dtype: torch.dtype, sizes: tuple[s.Expr, ...], storage: s.Storage) -> Handle:
        pads = "none" if all(isinstance(size, int) for size in sizes) else "rows"
        named = tuple(symbolic(size, "T") for size in sizes)
        strides = tuple(symbolic(stride, "T") for stride in contiguous_strides(sizes))
        text = str(dtype).removeprefix("torch.")
        self.values.append(s.Value(f"{name}_{len(self.values)}", text, named, strides, storage, pads))
        return Handle(self, len(self.values) - 1, sizes, dtype)

    def plan(self, outputs: Sequence[Handle]) -> s.Plan:
        ports = tuple(s.Port(f"out{i}", handle.index, ()) for i, handle in enumerate(outputs))
        method = s.Method("decode", "rows", "T", BUCKETS, (s.Port("upload", 0, PAD_ROW),), ports, tuple(self.values),
                          (s.Segment(tuple(self.launches)),), self.arena,
                          s.Ladder("explicit", "eager", 0, 0, 0))
        features = tuple(sorted({FEATURES[type(kernel.body)] for kernel in self.table.kernels}))
        weights = tuple(s.Weight(name, str(t.dtype).removeprefix("torch."), tuple(t.shape))
                        for name, t in self.weights.items())
        return s.Plan(1, features, "cpu", s.Provenance("0" * 64, {"max_model_len": 28}, "test"),
                      (s.Symbol("T", 1, MAX_ROWS),), s.Memory(256, 0, self.io, self.arena, 256 + self.io + self.arena),
                      weights, STATE, (), tuple(self.table.kernels), (method,),
                      (s.Flow("decode", ("decode",), "all_rows_output"),), ())


def write_artifact(directory: Path, plan: s.Plan, weights: Mapping[str, torch.Tensor]) -> Path:
    directory.mkdir(parents=True)
    name = "model-00001-of-00001.safetensors"
    save_file(dict(weights), directory / name)
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": dict.fromkeys(weights, name)}))
    (directory / "plan.json").write_bytes(encode(plan))
    (directory / "config.json").write_text("{}")
    write_manifest(directory, plan)
    return directory


def upload_rows(count: int) -> np.ndarray:
    """`count` rows of one slot from position 0, all of different tokens."""
    return np.array([[0, i, (5 * i + 2) % VOCAB, int(i == 0), (0 if i == 0 else 1) if i % BLOCK == 0 else -1]
                     for i in range(count)], np.int32)


class Launching:
    """The namespace `ops` of a composition whose every call becomes a launch of its own."""

    def __init__(self, method: OneMethod) -> None:
        self._method = method

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *args: self._method.call(name, *args)


def moved_to_io(method: OneMethod, handle: Handle) -> None:
    """An arena value becomes an output."""
    value = method.values[handle.index]
    method.values[handle.index] = replace(value, storage=s.IoStorage(method.io))
    method.io += -(-MAX_ROWS * 64 * 4 // 64) * 64
