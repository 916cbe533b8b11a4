"""The example plan with one launch made a sequence, and one change of it for each rule of sequences."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

from dsv41c.runtime.plan import schema as s
from dsv41c.runtime.plan.codec import decode, encode
from tests.unit.runtime.plan.broken_plans import launch, set_path
from tests.unit.runtime.plan.plan_strategies import EXAMPLE, example_plan

MIX, DOUBLE, TAKE, FUSED = range(4)
ROW = 4 * EXAMPLE.columns
TENSOR = s.Binary("*", 64, s.Binary("ceildiv", s.Binary("*", ROW, "rows"), 64))  # bytes; also double's scratch
TWO = s.Binary("+", TENSOR, TENSOR)


def fused_kernel() -> s.Kernel:
    """double, mix, double: two temporaries, a view, part scratches behind them and in place of a dead temporary."""
    sizes, strides = ("rows", EXAMPLE.columns), (EXAMPLE.columns, 1)
    locals_: tuple[s.SequenceLocal, ...] = (
        s.ArgLocal(0, "float32", sizes, strides), s.ArgLocal(1, "float32", sizes, strides),
        s.TempLocal("float32", sizes, strides, 0),
        s.ViewLocal(2, "float32", (s.Binary("*", EXAMPLE.columns, "rows"),), (1,), 0),
        s.TempLocal("float32", sizes, strides, TENSOR),
    )
    parts = (s.Part(DOUBLE, (s.In(0), s.Out(2)), TWO),
             s.Part(MIX, (s.In(3), s.Absent(), s.Out(4)), TWO),
             s.Part(DOUBLE, (s.In(4), s.Out(1)), 0))
    return s.Kernel("dsv41c::fused", {"eps": s.FloatTag.of(0.5)}, s.SequenceBody(locals_, parts),
                    s.Binary("+", TWO, s.Binary("*", 64, "rows")))


def sequence_plan() -> s.Plan:
    plan = example_plan()
    plan = dataclasses.replace(plan, kernels=(*plan.kernels, fused_kernel()),
                               required_features=("aten_composites", "kernel_sequences", "native_cpu"))
    doc = json.loads(encode(plan))
    launch(doc, 0, "double.1").update(kernel=FUSED)
    return decode(json.dumps(doc).encode())


def local(number: int, **changes: Any) -> Callable[[Any], None]:
    return lambda doc: doc["kernels"][FUSED]["body"]["locals"][number].update(changes)


def part(number: int, **changes: Any) -> Callable[[Any], None]:
    return lambda doc: doc["kernels"][FUSED]["body"]["parts"][number].update(changes)


def tensor(number: int, index: int, **argument: Any) -> Callable[[Any], None]:
    """Another argument of a part."""
    return lambda doc: doc["kernels"][FUSED]["body"]["parts"][number]["tensors"].__setitem__(index, argument)


def both(*changes: Callable[[Any], object]) -> Callable[[Any], None]:
    def change(doc: Any) -> None:
        for each in changes:
            each(doc)

    return change


def roomy(doc: Any) -> None:
    """Scratch for what a change moves out of the way."""
    doc["kernels"][FUSED]["scratch_bytes"] = 2048
    next(v for v in doc["methods"][0]["values"] if v["name"] == "scratch")["sizes"] = [["+", 2048, ["*", 256, "T"]]]


def nested(doc: Any) -> None:
    """A second sequence whose only part is the first."""
    kernel = json.loads(json.dumps(doc["kernels"][FUSED]))
    kernel["body"]["parts"] = [{"kernel": FUSED, "tensors": [{"in": 0}, {"out": 1}], "scratch": 0}]
    doc["kernels"].append(kernel)


def cuda_part(doc: Any) -> None:
    """Kernel `mix` as a cubin that has a parameter for the first tensor only; the target does not matter yet."""
    doc["target"] = "sm_90a"
    doc["required_features"] = ["aten_composites", "cuda_cubin", "kernel_sequences"]
    body = {"kind": "cuda", "launches": [{"kernel": {
        "cubin": "0" * 64, "symbol": "mix", "params": [{"tensor": 0}], "grid": [1, 1, 1], "block": [1, 1, 1],
        "shared_bytes": 0}}]}
    for kernel in (MIX, TAKE):
        doc["kernels"][kernel]["body"] = json.loads(json.dumps(body))
    doc["kernels"][MIX]["body"]["launches"][0]["kernel"]["params"] = [{"tensor": 0}]
    for method in doc["methods"]:  # plain launches pass all of theirs
        for step in method["steps"]:
            for each in next(iter(step.values()))["launches"]:
                if each["kernel"] in (MIX, TAKE):
                    each["tensors"] = [{"inout": a["out"]} if "out" in a else a for a in each["tensors"]]


BROKEN: dict[str, tuple[str, Callable[[Any], object]]] = {
    "feature": ("feature is not declared", lambda d: d["required_features"].remove("kernel_sequences")),
    "no parts": ("body without parts", set_path("kernels", FUSED, "body", "parts", [])),
    "a part of itself": ("kernel index out of range", part(0, kernel=FUSED)),
    "a later kernel": ("kernel index out of range", part(0, kernel=9)),
    "a kernel before the first": ("kernel index out of range", part(2, kernel=-1)),
    "a sequence in a sequence": ("sequence inside a sequence", nested),
    "local index": ("local index out of range", tensor(1, 0, **{"in": 5})),
    "local of seven dims": ("too many dimensions", local(0, sizes=["rows"] + [1] * 6, strides=[1] * 7)),
    "argument negative": ("argument index out of range", local(0, index=-1)),
    "argument beyond the launch": ("argument index out of range", local(0, index=2)),
    "argument of another dtype": ("argument of the wrong dtype", local(0, dtype="int32")),
    "dtype of a temporary": ("argument of the wrong dtype", both(local(2, dtype="int32"), local(3, dtype="int32"))),
    "argument larger than the launch's": ("argument is too small", local(0, sizes=["rows", 5])),
    "argument smaller than the part's": ("argument is too small", local(4, sizes=["rows", 3], strides=[3, 1])),
    "launch leaves the argument out": ("body uses an absent argument",
                                       lambda d: launch(d, 0, "double.1")["tensors"].__setitem__(0, {"none": True})),
    "part leaves an argument out": ("body uses an absent argument", tensor(0, 0, none=True)),
    "part without an argument": ("argument index out of range",
                                 lambda d: d["kernels"][FUSED]["body"]["parts"][0]["tensors"].pop()),
    "part reads what its kernel writes": ("body writes an input", tensor(0, 1, **{"in": 1})),
    "part writes an input of the launch": ("body writes an input", both(
        tensor(0, 1, out=0), tensor(0, 0, **{"in": 1}), tensor(1, 0, **{"in": 0}))),
    "part writes what its kernel does not": ("out is not written first", tensor(0, 0, out=4)),
    "part has an out too many": ("out is not written first",
                                 lambda d: d["kernels"][FUSED]["body"]["parts"][2]["tensors"].append({"out": 2})),
    "out of the launch is read first": ("out is not written first", both(
        tensor(0, 0, **{"in": 1}), tensor(2, 0, **{"in": 4}))),
    "out of the launch is not written": ("out is not written first", both(
        tensor(2, 1, out=2), part(2, scratch=1 << 10), roomy)),
    "out of the launch has no local": ("out is not written first", both(
        local(1, index=0), tensor(2, 1, out=2), part(2, scratch=1 << 10), roomy)),
    "out overlaps an input": ("written tensor overlaps another", tensor(0, 1, out=0)),
    "inout overlaps a view of it": ("written tensor overlaps another", tensor(1, 1, inout=2)),
    "temporary read first": ("temporary is read before it is written", tensor(0, 0, **{"in": 4})),
    "view of a temporary read first": ("temporary is read before it is written", both(
        tensor(0, 0, **{"in": 3}), tensor(0, 1, out=4))),
    "inout of an unwritten temporary": ("temporary is read before it is written", both(
        tensor(1, 1, inout=4), tensor(1, 2, none=True))),
    "parts out of order": ("temporary is read before it is written",
                           lambda d: d["kernels"][FUSED]["body"]["parts"].reverse()),
    "temporaries overlap": ("written tensor overlaps another", local(4, offset=0)),
    "temporary in the scratch of a part": ("two live values overlap", part(1, scratch=0)),
    "scratch of a part in a temporary": ("two live values overlap", part(0, scratch=0)),
    "scratch of the last part in its input": ("two live values overlap", part(2, scratch=["*", 64, ["ceildiv", [
        "*", ROW, "rows"], 64]])),
    "scratch of a part outside": ("scratch of a part outside the scratch", part(1, scratch=4096)),
    "scratch of a part far away": ("offset out of range", part(1, scratch=2**63 - 64)),
    "scratch of a part negative": ("offset out of range", part(1, scratch=-64)),
    "scratch of a part unaligned": ("offset is not aligned", part(1, scratch=["+", 4, ["*", 64, "rows"]])),
    "scratch of a part falls": ("expression may fall as the symbol grows", part(2, scratch=["-", 64, "rows"])),
    "scratch of a part in another symbol": ("unknown symbol", part(2, scratch="T")),
    "temporary outside": ("temporary outside the scratch", local(2, offset=4096)),
    "temporary unaligned": ("offset is not aligned", local(2, offset=4)),
    "temporary negative": ("offset out of range", local(2, offset=-64)),
    "temporary with gaps": ("strides are not contiguous", local(2, strides=[5, 1])),
    "view outside": ("view outside its base", local(3, offset=1)),
    "view of a later local": ("view base index out of range", local(3, of=3)),
    "size zero": ("size below 1", local(2, sizes=["rows", 0])),
    "smaller scratch of the kernel": ("temporary outside the scratch", set_path("kernels", FUSED, "scratch_bytes", 64)),
    "launch with too little scratch": ("scratch is too small",
                                       lambda d: launch(d, 0, "double.1").update(scratch=None)),
    "cubin without a parameter for an out": ("out is no parameter", cuda_part),
}
