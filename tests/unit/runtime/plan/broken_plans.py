"""One change to the example plan for each rule of the verifier, with the subject of its error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

ENCODER, DECODER = 0, 1
BIG = 2**62


def method(doc: Any, index: int) -> Any:
    return doc["methods"][index]


def value(doc: Any, index: int, name: str) -> Any:
    return next(v for v in method(doc, index)["values"] if v["name"] == name)


def position(doc: Any, index: int, name: str) -> int:
    return [v["name"] for v in method(doc, index)["values"]].index(name)


def launches(doc: Any, index: int) -> list[Any]:
    steps = [next(iter(step.values())) for step in method(doc, index)["steps"]]
    return [launch for step in steps for launch in step["launches"]]


def launch(doc: Any, index: int, name: str) -> Any:
    return next(each for each in launches(doc, index) if each["name"] == name)


def double(doc: Any) -> Any:
    return doc["kernels"][1]["body"]


def swap_launches(doc: Any) -> None:
    """mix.0 writes what double.1 reads."""
    first, second = launches(doc, ENCODER)[:2]
    first_copy = dict(first)
    first.update(second)
    second.update(first_copy)


def move_value(name: str, to: str) -> Callable[[Any], None]:
    return lambda doc: value(doc, ENCODER, name).update(storage=value(doc, ENCODER, to)["storage"])


def set_path(*path: Any) -> Callable[[Any], None]:
    """set_path("memory", "io_bytes", 5): the last item is the new value."""

    def change(doc: Any) -> None:
        for key in path[:-2]:
            doc = doc[key]
        doc[path[-2]] = path[-1]

    return change


def in_value(index: int, name: str, **changes: Any) -> Callable[[Any], None]:
    return lambda doc: value(doc, index, name).update(changes)


def argument(index: int, name: str, number: int, kind: str | None = None, to: str | int | None = None
             ) -> Callable[[Any], None]:
    """Changes the role or the value of one launch argument."""

    def change(doc: Any) -> None:
        tensors = launch(doc, index, name)["tensors"]
        [(old, target)] = tensors[number].items()
        target = position(doc, index, to) if isinstance(to, str) else target if to is None else to
        tensors[number] = {kind or old: target}

    return change


def duplicate(table: str) -> Callable[[Any], None]:
    return lambda doc: doc[table].append(doc[table][0])


def view_of_itself(doc: Any) -> None:
    itself = position(doc, ENCODER, "upload.flat")
    value(doc, ENCODER, "upload.flat").update(storage={"view": {"of": itself, "offset": 0}})


def grow_columns(doc: Any) -> None:
    value(doc, ENCODER, "upload").update(sizes=["T", "T"], strides=["T", 1])
    value(doc, ENCODER, "upload.flat").update(sizes=["T"])
    memory = doc["memory"]
    memory.update(io_bytes=1024, total_bytes=memory["total_bytes"] + 1024 - memory["io_bytes"])


def drop_feature(doc: Any) -> None:
    doc["required_features"].remove("native_cpu")


FALLS = "expression may fall as the symbol grows"
HUMP: list[Any] = ["+", "T", ["*", ["-", "T", 1], ["-", 8, "T"]]]  # 1 at 1, 8 at 8, 16 at 4

BROKEN: dict[str, tuple[str, Callable[[Any], object]]] = {
    # tables
    "features out of order": ("features are not sorted", lambda d: d["required_features"].reverse()),
    "feature twice": ("features are not sorted",
                      lambda d: d["required_features"].insert(0, "aten_composites")),
    "feature not declared": ("feature is not declared", drop_feature),
    "target": ("unknown target", set_path("target", "tpu")),
    "symbol twice": ("duplicate name", duplicate("symbols")),
    "weight twice": ("duplicate name", duplicate("weights")),
    "flow twice": ("duplicate name", duplicate("flows")),
    "method twice": ("duplicate name", lambda d: method(d, DECODER).update(name="encoder")),
    "symbol rows": ("reserved symbol name", set_path("symbols", 0, "name", "rows")),
    "lo above hi": ("bad symbol bounds", set_path("symbols", 0, "lo", 9)),
    "lo of zero": ("bad symbol bounds", set_path("symbols", 0, "lo", 0)),
    "io not a multiple": ("bad memory size", set_path("memory", "io_bytes", 5)),
    "arena negative": ("bad memory size", set_path("memory", "arena_bytes", -64)),
    "total": ("memory total is wrong", set_path("memory", "total_bytes", 64)),
    "arena not the largest": ("memory arena is wrong",
                              lambda d: d["memory"].update(arena_bytes=d["memory"]["arena_bytes"] + 64,
                                                           total_bytes=d["memory"]["total_bytes"] + 64)),
    "weight of seven dims": ("too many dimensions", set_path("weights", 0, "sizes", [1] * 7)),
    "weight size zero": ("size below 1", set_path("weights", 0, "sizes", [0])),
    "weight too large": ("tensor is too large", set_path("weights", 0, "sizes", [BIG, BIG])),
    "states overlap": ("ranges overlap", set_path("state", 1, "offset", 0)),
    "state unaligned": ("offset is not aligned", set_path("state", 1, "offset", 68)),
    "state negative": ("offset out of range", set_path("state", 1, "offset", -64)),
    "state outside": ("range outside its region", set_path("state", 1, "offset", 128)),
    "bridge outside": ("range outside its region", set_path("bridges", 0, "offset", 64)),
    "axis": ("unknown axis", set_path("methods", 0, "axis", "columns")),
    "method symbol": ("unknown symbol", set_path("methods", 0, "symbol", "Q")),
    "bucket above the bound": ("bucket outside the bounds", set_path("methods", 0, "buckets", [1, 9])),
    "bucket below the bound": ("bucket outside the bounds", set_path("methods", 0, "buckets", [0])),
    "buckets not ascending": ("buckets are not ascending", set_path("methods", 0, "buckets", [4, 4])),
    "bucket policy": ("unknown bucket policy", set_path("methods", 0, "ladder", "policy", "luck")),
    "rule above the ladder": ("unknown rule above the ladder", set_path("methods", 0, "ladder", "above", "drop")),
    "cost below zero": ("cost out of range", set_path("methods", 0, "ladder", "row_ns", -1)),
    "cost above the most": ("cost out of range", set_path("methods", 1, "ladder", "eager_ns", 10**12 + 1)),
    "split of a method of all rows": ("method cannot be split", set_path("methods", 0, "ladder", "above", "split")),
    "flow requirement": ("unknown requirement", set_path("flows", 0, "requires", "luck")),
    "empty flow": ("empty flow", set_path("flows", 0, "methods", [])),
    "flow of unknown method": ("unknown method", set_path("flows", 0, "methods", ["draft"])),
    "groups beside rows": ("groups beside rows in a flow", set_path("methods", ENCODER, "axis", "groups")),
    "method twice in a flow": ("method twice in a flow",
                               set_path("flows", 0, "methods", ["encoder", "encoder"])),
    # values
    "pad rule dropped": ("pad rule missing", in_value(ENCODER, "v0", pads="none")),
    "symbol of another method": ("unknown symbol", in_value(ENCODER, "v0", sizes=["R", 4])),
    "size zero at lo": ("size below 1", in_value(ENCODER, "v0", sizes=[["-", "T", 1], 4])),
    "negative stride": ("negative stride", in_value(ENCODER, "upload.flat", strides=[-1])),
    "strides missing": ("sizes and strides differ in length", in_value(ENCODER, "v0", strides=[1])),
    "strides not contiguous": ("strides are not contiguous", in_value(ENCODER, "v0", strides=[5, 1])),
    "value of seven dims": ("too many dimensions", in_value(ENCODER, "v0", sizes=["T"] + [1] * 6)),
    "value too large": ("tensor is too large", in_value(ENCODER, "v0", sizes=["T", BIG], strides=[BIG, 1])),
    "division by zero": ("division by less than 1", in_value(ENCODER, "v0", sizes=[["floordiv", "T", 0], 4])),
    "value shrinks": (FALLS, in_value(ENCODER, "v0", sizes=[["-", 9, "T"], 4])),
    "size right at both bounds": (FALLS, in_value(ENCODER, "v0", sizes=[HUMP, 4])),
    "size over a symbol": (FALLS, in_value(ENCODER, "v0", sizes=[["ceildiv", 8, "T"], 4])),
    "negative factor": (FALLS, in_value(ENCODER, "v0", sizes=[["+", 9, ["*", -1, "T"]], 4])),
    "factor that may be negative": (FALLS, in_value(ENCODER, "v0", sizes=[
        ["+", 7, ["*", ["-", "T", 5], "T"]], 4])),
    "stride falls": (FALLS, in_value(ENCODER, "upload.flat", strides=[["-", 9, "T"]])),
    "view offset falls": (FALLS, in_value(ENCODER, "upload.flat",
                                          storage={"view": {"of": 0, "offset": ["-", 8, "T"]}})),
    "view outside at a bucket": ("view outside its base", in_value(
        ENCODER, "upload.flat", sizes=[["+", 5, ["min", 35, ["*", 7, ["-", "T", 1]]]]])),
    "arena end": ("range outside its region", in_value(ENCODER, "v0", storage={"arena": 1 << 20})),
    "arena unaligned": ("offset is not aligned", in_value(ENCODER, "v0", storage={"arena": 4})),
    "arena negative offset": ("offset out of range", in_value(ENCODER, "v0", storage={"arena": -64})),
    "io end": ("range outside its region", in_value(ENCODER, "upload", storage={"io": 1 << 20})),
    "io overlap across a flow": ("ranges overlap", in_value(DECODER, "logit_rows", storage={"io": 0})),
    "io overlap in a method": ("ranges overlap",
                               lambda d: value(d, DECODER, "logit_rows").update(
                                   storage=value(d, DECODER, "logits")["storage"])),
    "weight index": ("weight index out of range", in_value(ENCODER, "norm.weight", storage={"weight": 1})),
    "state index": ("state index out of range", in_value(ENCODER, "position", storage={"state": -1})),
    "bridge index": ("bridge index out of range", in_value(ENCODER, "kept", storage={"bridge": 7})),
    "weight sizes": ("value differs from its table entry", in_value(ENCODER, "norm.weight", sizes=[3])),
    "state dtype": ("value differs from its table entry", in_value(ENCODER, "position", dtype="float32")),
    "bridge above capacity": ("value differs from its table entry",
                              in_value(DECODER, "kept", sizes=[9, 4])),
    "view of a later value": ("view base index out of range", view_of_itself),
    "view outside its base": ("view outside its base", in_value(ENCODER, "upload.flat",
                                                                storage={"view": {"of": 0, "offset": 1}})),
    "view before its base": ("offset out of range", in_value(ENCODER, "upload.flat",
                                                             storage={"view": {"of": 0, "offset": -1}})),
    "view far away": ("offset out of range", in_value(ENCODER, "upload.flat",
                                                      storage={"view": {"of": 0, "offset": 2**63 - 1}})),
    "view unaligned": ("offset is not aligned", lambda d: method(d, ENCODER)["values"].extend([
        dict(value(d, ENCODER, "upload.flat"), name="a", dtype="uint8", sizes=["T"],
             storage={"view": {"of": 0, "offset": 1}}),
        dict(value(d, ENCODER, "upload.flat"), name="b", sizes=[1], pads="none",
             storage={"view": {"of": len(method(d, ENCODER)["values"]), "offset": 0}})])),
    # ports
    "port index": ("value index out of range", set_path("methods", 0, "inputs", 0, "value", 99)),
    "port in the arena": ("port outside io",
                          lambda d: method(d, ENCODER)["inputs"][0].update(value=position(d, ENCODER, "v0"))),
    "pad row too short": ("pad row of the wrong length", set_path("methods", 0, "inputs", 0, "pad", [0])),
    "pad row of an output": ("pad row of the wrong length", set_path("methods", 1, "outputs", 0, "pad", [0])),
    "input twice": ("duplicate name",
                    lambda d: method(d, ENCODER)["inputs"].append(method(d, ENCODER)["inputs"][0])),
    "columns grow": ("port columns are not constant", grow_columns),
    # launches
    "kernel index": ("kernel index out of range", lambda d: launch(d, ENCODER, "mix.0").update(kernel=3)),
    "value index": ("value index out of range", argument(ENCODER, "mix.0", 0, to=99)),
    "scratch index": ("scratch index out of range", lambda d: launch(d, ENCODER, "mix.0").update(scratch=99)),
    "no scratch": ("scratch is too small", lambda d: launch(d, ENCODER, "mix.0").update(scratch=None)),
    "small scratch": ("scratch is too small", in_value(ENCODER, "scratch", sizes=[["*", "T", 63]])),
    "scratch in io": ("scratch outside the arena", lambda d: launch(d, ENCODER, "mix.0").update(scratch=0)),
    "weight written": ("weight is written", argument(ENCODER, "mix.0", 0, kind="inout")),
    "state as out": ("state is written as out", argument(ENCODER, "mix.0", 1, kind="out")),
    "out is an input": ("written tensor overlaps another", argument(ENCODER, "double.1", 0, to="v1")),
    "out overlaps an input": ("written tensor overlaps another", move_value("v1", "v0")),
    "scratch overlaps an input": ("written tensor overlaps another", move_value("scratch", "v0")),
    "inout twice": ("written tensor overlaps another", argument(ENCODER, "mix.0", 0, to="position")),
    "two live values overlap": ("two live values overlap", move_value("v2", "v0")),
    "absent argument": ("body uses an absent argument",
                        lambda d: launch(d, ENCODER, "double.1")["tensors"].__setitem__(0, {"none": True})),
    "argument missing": ("argument index out of range",
                         lambda d: launch(d, ENCODER, "double.1")["tensors"].pop()),
    "argument dtype": ("argument of the wrong dtype", argument(ENCODER, "double.1", 0, to="upload")),
    "argument too small": ("argument is too small", argument(ENCODER, "double.1", 0, to="norm.weight")),
    "body writes an input": ("body writes an input", argument(ENCODER, "double.1", 1, kind="in")),
    "out not written": ("out is not written first",
                        lambda d: launch(d, ENCODER, "double.1")["tensors"].append({"out": 3})),
    "input as out": ("out is not written first", argument(ENCODER, "double.1", 0, kind="out")),
    # order
    "dependent launches swapped": ("value is read before it is written", swap_launches),
    "inout before out": ("value is read before it is written", argument(ENCODER, "mix.0", 4, kind="inout")),
    "output not written": ("output is never written", argument(DECODER, "double", 1, to="kept")),
    "bridge not written": ("bridge is read before it is written", argument(ENCODER, "keep", 1, to="v0")),
    "bridge of a later method": ("bridge is read before it is written",
                                 lambda d: d["flows"][0]["methods"].reverse()),
    # kernels
    "kernel symbol": ("unknown symbol", set_path("kernels", 0, "scratch_bytes", "T")),
    "negative scratch": ("negative scratch", set_path("kernels", 0, "scratch_bytes", ["-", "rows", 9])),
    "scratch falls": (FALLS, set_path("kernels", 0, "scratch_bytes", ["-", 64, "rows"])),
    "temporary offset falls": (FALLS, lambda d: double(d)["locals"][2].update(offset=["-", 64, "rows"])),
    "scratch too small at a bucket": ("scratch is too small", in_value(
        ENCODER, "scratch", sizes=[["+", 64, ["*", 448, ["floordiv", "T", 8]]]])),
    "scratch overflow": ("result outside int64",
                         set_path("kernels", 0, "scratch_bytes", ["*", 2**62, "rows"])),
    "argument negative": ("argument index out of range", lambda d: double(d)["locals"][0].update(index=-1)),
    "temporary outside": ("temporary outside the scratch",
                          lambda d: double(d)["locals"][2].update(offset=4096)),
    "temporary unaligned": ("offset is not aligned", lambda d: double(d)["locals"][2].update(offset=1)),
    "temporary negative": ("offset out of range", lambda d: double(d)["locals"][2].update(offset=-4)),
    "local view outside": ("view outside its base", lambda d: double(d)["locals"][4].update(offset=1)),
    "local view of a later": ("view base index out of range", lambda d: double(d)["locals"][4].update(of=5)),
    "local index": ("local index out of range", lambda d: double(d)["calls"][0]["args"][0].update(t=7)),
    "temporary unwritten": ("temporary is read before it is written", lambda d: double(d)["calls"].pop(0)),
    "constant written": ("constant is written", lambda d: double(d)["calls"][0]["args"][2].update(m=3)),
    "temporaries overlap": ("two live values overlap", lambda d: (
        double(d)["locals"].append(dict(double(d)["locals"][2])),
        double(d)["calls"].insert(1, {"op": "aten::neg", "overload": "out", "args": [{"t": 2}, {"m": 7}]}))),
    "integer argument": ("unknown symbol", lambda d: double(d)["calls"][1]["args"][1].update(i="T")),
}
