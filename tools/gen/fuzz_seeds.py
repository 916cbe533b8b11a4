"""Seeds and dictionaries of the fuzz targets: small files as the project writes them, and the words of its formats."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

from dsv41c.runtime.c_api import EngineOptions, GenerateParams
from dsv41c.runtime.plan import codec, expr, format, schema

_MANIFEST = {
    "format_version": schema.FORMAT_VERSION, "producer": "dsv41c", "target": "cpu", "plan_only": False,
    "required_features": ["native_cpu"], "model_digest": "0" * 64, "header_digest": None, "options": {},
    "options_digest": "", "plan_digest": "0" * 64, "files": {"plan.json": {"bytes": 6, "sha256": "0" * 64}},
}
_TENSOR = {"dtype": "F32", "shape": [2, 1], "data_offsets": [0, 8]}


def small_plan() -> schema.Plan:
    """One method with one native launch and one composite; every table of the format has an entry."""
    weight = schema.Weight("w", "float32", (4,))
    state = schema.State("s", "int32", (16,), 0, 0)
    values = (schema.Value("in", "int32", ("T", 5), (5, 1), schema.IoStorage(0), "rows"),
              schema.Value("s", "int32", (16,), (1,), schema.StateStorage(0), "none"),
              schema.Value("w", "float32", (4,), (1,), schema.WeightStorage(0), "none"),
              schema.Value("x", "float32", ("T", 4), (4, 1), schema.ArenaStorage(0), "rows"),
              schema.Value("out", "float32", ("T", 4), (4, 1), schema.IoStorage(64), "rows"),
              schema.Value("half", "float32", ("T", 2), (4, 1), schema.ViewStorage(3, 0), "rows"))
    body = schema.CompositeBody(
        (schema.ArgLocal(0, "float32", ("rows", 4), (4, 1)), schema.ArgLocal(1, "float32", ("rows", 4), (4, 1))),
        (schema.Call("aten::neg", "out", (schema.TensorTag(0), schema.MutableTag(1))),))
    kernels = (schema.Kernel("dsv41c::a", {"n": 1, "x": schema.FloatTag.of(0.5)}, schema.NativeBody("a"), 0),
               schema.Kernel("dsv41c::b", {}, body, 0))
    launches = (schema.Launch("a", 0, (schema.In(0), schema.In(2), schema.InOut(1), schema.Out(3)), None),
                schema.Launch("b", 1, (schema.In(3), schema.Out(4)), None))
    method = schema.Method("decode", "rows", "T", (1, 2), (schema.Port("upload", 0, (0, 0, 0, 5, -1)),),
                           (schema.Port("logits", 4, ()),), values, (schema.Segment(launches),), 64,
                           schema.Ladder("default", "eager", 1, 2, 3))
    return schema.Plan(
        1, ("aten_composites", "native_cpu"), "cpu", schema.Provenance("0" * 64, {"max_model_len": 8}, "seed"),
        (schema.Symbol("T", 1, 2),), schema.Memory(64, 64, 128, 64, 320), (weight,), (state,),
        (schema.Bridge("b", "float32", (2, 4), 0),), kernels, (method,),
        (schema.Flow("decode", ("decode",), "nothing"),), (schema.Check((1,), (2,)),))


def broken_plan() -> schema.Plan:
    """The same with its first launch as a break, whose output lies in a bridge."""
    plan = small_plan()
    (method,) = plan.methods
    ((first, second),) = (step.launches for step in method.steps)
    values = tuple(dataclasses.replace(v, storage=schema.BridgeStorage(1)) if v.name == "x" else v
                   for v in method.values)
    bridge = schema.Bridge("decode.x", "float32", (2, 4), 64, schema.StepsLife("decode", 0, 1))
    steps = (schema.Break("a", "why", (first,)), schema.Segment((second,)))
    return dataclasses.replace(plan, bridges=(*plan.bridges, bridge), memory=schema.Memory(64, 128, 128, 64, 384),
                               methods=(dataclasses.replace(method, values=values, steps=steps),))


def words_of_plans() -> set[str]:
    """Keys, tags, kinds and operators: the strings that the format gives a meaning to."""
    fields = {f.name for c in vars(schema).values() if isinstance(c, type) and dataclasses.is_dataclass(c)
              for f in dataclasses.fields(c)}
    choices = {*format.AXES, *format.BUCKET_POLICIES, *format.ABOVE_LADDER}
    return fields | choices | set(format.DTYPES) | set(format.FEATURES) | set(expr.OPERATORS)


def words_in(value: object) -> set[str]:
    """Keys and strings of a JSON value."""
    if isinstance(value, dict):
        return set(value) | {word for inner in value.values() for word in words_in(inner)}
    if isinstance(value, list):
        return {word for inner in value for word in words_in(inner)}
    return {value} if isinstance(value, str) else set()


def write(folder: Path, target: str, seeds: list[bytes], words: set[str]) -> None:
    """`seeds/TARGET/*` and `TARGET.dict` with each word as a JSON string."""
    (folder / "seeds" / target).mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds):
        (folder / "seeds" / target / str(number)).write_bytes(seed)
    lines = [json.dumps('"' + word + '"') for word in sorted(words) if word and word.isascii()]
    numbers = ['"-1"', '"9223372036854775807"', '"18446744073709551616"', '"1e999"', '"null"', '"[]"', '"{}"']
    (folder / f"{target}.dict").write_text("\n".join([*lines, *numbers]) + "\n")


def options() -> list[bytes]:
    """A target's number, the size that the caller claims, the struct; and tokens behind parameters."""
    params = GenerateParams(max_new_tokens=16, min_new_tokens=2, temperature=1.0, top_p=0.9, top_k=5, n_logprobs=3)
    engine = EngineOptions(flags=1, kv_pages=4, max_context=64, max_batch=2, max_batch_tokens=32)
    structs = [(0, bytes(params)), (1, bytes(engine)), (0, bytes(params) + bytes(64)), (2, bytes(160)), (3, bytes(80))]
    tokens = bytes([1, 0, 0, 0] * 4)
    return [bytes([which]) + len(data).to_bytes(2, "little") + data + tokens for which, data in structs]


def main(folder: Path) -> None:
    plans = [codec.encode(small_plan()), codec.encode(broken_plan())]
    write(folder, "plan", plans, words_of_plans().union(*(words_in(json.loads(plan)) for plan in plans)))
    manifest = json.dumps(_MANIFEST).encode()
    write(folder, "manifest", [manifest], words_in(_MANIFEST))
    header = json.dumps({"__metadata__": {"format": "pt"}, "a": _TENSOR, "b": _TENSOR | {"dtype": "BF16"}}).encode()
    files = [len(text).to_bytes(8, "little") + text + bytes(8) for text in (header, b"{}")]
    write(folder, "safetensors_header", files, words_in(json.loads(header)) | {"F8_E4M3", "F8_E8M0", "I64", "BOOL"})
    write(folder, "options", options(), set())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
