"""CUDA bodies that must not run: the verifiers of both sides refuse them with the same words."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable

import pytest

from dsv41c.runtime.plan import schema as s
from dsv41c.runtime.plan.codec import canonical_json, decode, encode
from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.runtime.plan.verify import verify
from tests.unit.runtime.cuda.cuda_plan import CudaPlan, Start, tensors, toy
from tests.unit.runtime.plan import native_plan

SCALE = 1
Change = Callable[[s.CudaLaunch], s.CudaNode]
IN, OUT = s.TensorParam(0), s.TensorParam(1)
BYTES = s.Binary("*", 4, "rows")


def with_params(*params: s.CudaParam) -> Change:
    return lambda launch: dataclasses.replace(launch, params=(*launch.params, *params))


def replaced(**fields: object) -> Change:
    return lambda launch: dataclasses.replace(launch, **fields)  # type: ignore[arg-type]


def instead(*nodes: s.CudaNode) -> tuple[s.CudaNode, ...]:
    return nodes


def tensor_map(**fields: object) -> s.TensorMapParam:
    """Of the launch's input, 4 bytes a row."""
    sound = s.TensorMapParam(IN, "float32", ("rows",), (), (8,), (1,), "none", "none", "128b", "zero")
    return dataclasses.replace(sound, **fields)  # type: ignore[arg-type]


def with_map(**fields: object) -> Change:
    return with_params(tensor_map(**fields))


def scratch_copy(target: int, source: int, num_bytes: int) -> s.CudaCopy:
    return s.CudaCopy(s.ScratchParam(target), s.ScratchParam(source), num_bytes)


def changed(change: Change | tuple[s.CudaNode, ...]) -> s.Plan:
    """The toy plan with its `scale` launch changed, or with other nodes before it."""
    plan = toy(scratch=128)[1]
    kernels = list(plan.kernels)
    body = kernels[SCALE].body
    assert isinstance(body, s.CudaBody)
    [launch] = body.launches
    assert isinstance(launch, s.CudaLaunch)
    nodes = (*change, launch) if isinstance(change, tuple) else (change(launch),)
    kernels[SCALE] = dataclasses.replace(kernels[SCALE], body=s.CudaBody(nodes))
    return dataclasses.replace(plan, kernels=tuple(kernels))


def test_sound_plan_passes_both() -> None:
    for plan in (toy()[1], toy(with_fallback=True)[1], toy(target="sm_100a")[1]):
        verify(plan)
        native_plan.verify(encode(plan))


@pytest.mark.parametrize(("change", "subject"), [
    (replaced(cubin="A" * 64), "bad cubin digest"),
    (replaced(symbol=""), "no kernel symbol"),
    (replaced(grid=(1, 1)), "bad grid"),
    (replaced(grid=(s.Binary("-", "rows", 1), 1, 1)), "bad grid"),
    (replaced(grid=(1, 65_536, 1)), "bad grid"),
    (replaced(grid=("T", 1, 1)), "unknown symbol"),
    (replaced(block=(1, 1)), "bad block"),
    (replaced(block=(2048, 1, 1)), "bad block"),
    (replaced(block=(2**62, 2**62, 1)), "bad block"),
    (replaced(block=(-(2**63), 2, 1)), "bad block"),
    (replaced(block=(32, 0, 1)), "bad block"),
    (replaced(shared_bytes=-1), "bad shared memory"),
    (replaced(shared_bytes=232_449), "bad shared memory"),
    (with_params(s.TensorParam(-1)), "argument index out of range"),
    (with_params(s.TensorParam(2)), "argument index out of range"),
    (with_params(s.ScratchParam(129)), "parameter outside the scratch"),
    (with_params(s.Int32Param(2**31)), "parameter outside int32"),
    (with_params(s.Int64Param(s.Binary("floordiv", 1, s.Binary("-", "rows", 1)))), "division by less than 1"),
    (replaced(params=(s.TensorParam(0),)), "out is no parameter"),
    (instead(s.CudaMemset(OUT, 256, BYTES)), "bad memset value"),
    (instead(s.CudaMemset(OUT, -1, BYTES)), "bad memset value"),
    (instead(s.CudaMemset(OUT, 0, 0)), "bad number of bytes"),
    (instead(s.CudaMemset(OUT, 0, s.Binary("-", 20, "rows"))), "expression may fall"),
    (instead(s.CudaMemset(OUT, 0, s.Binary("*", 8, "rows"))), "argument is too small"),
    (instead(s.CudaMemset(IN, 0, BYTES)), "body writes an input"),
    (instead(s.CudaMemset(s.TensorParam(2), 0, BYTES)), "argument index out of range"),
    (instead(s.CudaMemset(s.TensorParam(-1), 0, BYTES)), "argument index out of range"),
    (instead(s.CudaMemset(s.ScratchParam(65), 0, 64)), "parameter outside the scratch"),
    (instead(s.CudaMemset(s.ScratchParam(-1), 0, 64)), "parameter outside the scratch"),
    (instead(s.CudaCopy(OUT, IN, 2**31)), "bad number of bytes"),
    (instead(s.CudaCopy(OUT, IN, s.Binary("+", 4, BYTES))), "argument is too small"),
    (instead(s.CudaCopy(IN, s.ScratchParam(0), BYTES)), "body writes an input"),
    (instead(s.CudaCopy(s.ScratchParam(0), OUT, BYTES)), "out is not written first"),
    (instead(s.CudaCopy(s.ScratchParam(0), s.ScratchParam(64), 65)), "parameter outside the scratch"),
    (instead(scratch_copy(32, 0, 33)), "copy overlaps itself"),
    (instead(scratch_copy(0, 32, 33)), "copy overlaps itself"),
    (instead(s.CudaMemset(OUT, 0, BYTES), s.CudaCopy(OUT, OUT, BYTES)), "copy overlaps itself"),
    (with_map(sizes=(), box=(), element_strides=()), "bad tensor map"),
    (with_map(sizes=(1,) * 6, strides=(16,) * 5, box=(4,) * 6, element_strides=(1,) * 6), "bad tensor map"),
    (with_map(strides=(16,)), "bad tensor map"),
    (with_map(box=(8, 8)), "bad tensor map"),
    (with_map(element_strides=()), "bad tensor map"),
    (with_map(interleave="16b"), "bad tensor map"),
    (with_map(sizes=(1, 1, 1), strides=(32, 32), box=(8, 1, 1), element_strides=(1,) * 3, interleave="32b"),
     "bad tensor map swizzle"),
    (with_map(dtype="int32", oob_fill="nan"), "bad tensor map fill"),
    (with_map(box=(257,)), "bad tensor map box"),
    (with_map(box=(0,)), "bad tensor map box"),
    (with_map(box=(2,)), "bad tensor map box"),
    (with_map(box=(12,), swizzle="32b"), "bad tensor map box"),
    (with_map(box=(20,), swizzle="64b"), "bad tensor map box"),
    (with_map(box=(36,), swizzle="128b"), "bad tensor map box"),
    (with_map(element_strides=(9,)), "bad tensor map element stride"),
    (with_map(element_strides=(0,)), "bad tensor map element stride"),
    (with_map(sizes=(0,)), "bad tensor map size"),
    (with_map(sizes=(2**32 + 1,)), "bad tensor map size"),
    (with_map(sizes=(s.Binary("-", 20, "rows"),)), "expression may fall"),
    (with_map(sizes=(1, 1), strides=(24,), box=(8, 1), element_strides=(1, 1)), "bad tensor map stride"),
    (with_map(sizes=(1, 1), strides=(0,), box=(8, 1), element_strides=(1, 1)), "bad tensor map stride"),
    (with_map(sizes=(1, 1), strides=(2**40,), box=(8, 1), element_strides=(1, 1)), "bad tensor map stride"),
    (with_map(sizes=(1,) + (2**32,) * 4, strides=(2**40 - 16,) * 4, box=(4,) + (1,) * 4, element_strides=(1,) * 5),
     "tensor is too large"),
    (with_map(sizes=(s.Binary("+", "rows", 1),)), "argument is too small"),
    (with_map(tensor=s.TensorParam(-1)), "argument index out of range"),
    (with_map(tensor=s.TensorParam(2)), "argument index out of range"),
    (with_map(tensor=s.ScratchParam(128)), "parameter outside the scratch"),
    (with_map(tensor=s.ScratchParam(8)), "tensor map is not aligned"),
])
def test_broken_body_is_refused_in_the_same_words(change: Change | tuple[s.CudaNode, ...], subject: str) -> None:
    plan = changed(change)
    with pytest.raises(Dsv41cError) as python:
        verify(plan)
    with pytest.raises(Dsv41cError) as native:
        native_plan.verify(encode(plan))
    assert native.value.to_json() == python.value.to_json()
    assert subject in python.value.subject


@pytest.mark.parametrize("change", [
    instead(s.CudaMemset(OUT, 255, BYTES), s.CudaCopy(s.ScratchParam(0), OUT, BYTES)),
    instead(s.CudaCopy(OUT, IN, BYTES), s.CudaMemset(s.ScratchParam(0), 0, 128)),
    instead(scratch_copy(64, 0, 64)),
    with_map(), with_map(tensor=s.ScratchParam(16)), with_map(dtype="bfloat16", oob_fill="nan", swizzle="32b"),
    with_map(sizes=(1, 1, 1), strides=(32, 32), box=(8, 1, 1), element_strides=(1, 8, 1), interleave="32b",
             swizzle="32b"),
])
def test_copies_memsets_and_maps_pass_both(change: Change | tuple[s.CudaNode, ...]) -> None:
    plan = changed(change)
    verify(plan)
    assert decode(encode(plan)) == plan
    native_plan.verify(encode(plan))


def test_map_of_a_view_must_be_aligned_and_absent_tensors_have_no_bytes() -> None:
    for node, argument, subject in (
            (s.CudaMemset(IN, 0, 4), s.Absent(), "body uses an absent argument"),
            (s.CudaLaunch("0" * 64, "k", (tensor_map(sizes=(1,)), OUT), (1, 1, 1), (1, 1, 1), 0), None,
             "tensor map is not aligned")):
        p = CudaPlan()
        upload, base, out = p.port("upload", "int32", 5), p.fixed("base"), p.buffer("out")
        part = p.value("part", "float32", (8,), s.ViewStorage(base, 2), (1,))
        p.launch("write", Start("test_note", tensors(0)), s.Out(base))
        p.launch("use", Start("test_note", tensors(0)), argument or s.In(part), s.Out(out))
        plan = p.plan(upload)
        kernel = dataclasses.replace(plan.kernels[1], body=s.CudaBody((node, plan.kernels[1].body.launches[0])))
        plan = dataclasses.replace(plan, kernels=(plan.kernels[0], kernel))
        with pytest.raises(Dsv41cError, match=subject) as python:
            verify(plan)
        with pytest.raises(Dsv41cError) as native:
            native_plan.verify(encode(plan))
        assert native.value.to_json() == python.value.to_json()


@pytest.mark.parametrize("text", [
    '{"copy":{"target":{"int32":1},"source":{"tensor":0},"bytes":4}}',
    '{"memset":{"target":{"tensor":1},"value":true,"bytes":4}}',
    '{"memset":{"target":{"tensor":1},"value":0}}',
    '{"fill":{"target":{"tensor":1},"value":0,"bytes":4}}',
    '{"copy":{"target":{"tensor":1},"source":{"tensor":0},"bytes":4},"kind":"copy"}',
    '{"kernel":{"cubin":"","symbol":"","params":[{"tensor_map":{}}],"grid":[],"block":[],"shared_bytes":0}}',
    '{"kernel":{"cubin":"","symbol":"","params":[{"tensor_map":{"tensor":{"tensor":0},"dtype":"float32","sizes":[1],'
    '"strides":[],"box":[4],"element_strides":[1],"interleave":"none","swizzle":"256b","l2_promotion":"none",'
    '"oob_fill":"zero"}}],"grid":[],"block":[],"shared_bytes":0}}',
])
def test_malformed_node_is_refused_in_the_same_words(text: str) -> None:
    root = json.loads(encode(toy()[1]))
    root["kernels"][SCALE]["body"]["launches"] = [json.loads(text)]
    data = canonical_json(root)
    with pytest.raises(Dsv41cError, match="E0501") as python:
        decode(data)
    with pytest.raises(Dsv41cError) as native:
        native_plan.verify(data)
    assert native.value.to_json() == python.value.to_json()


@pytest.mark.parametrize(("target", "body"), [("sm_90a", s.NativeBody("scale")), ("cpu", None)])
def test_body_of_another_target(target: str, body: s.NativeBody | None) -> None:
    plan = dataclasses.replace(toy()[1], target=target)
    if body:
        kernels = (dataclasses.replace(plan.kernels[0], body=body), *plan.kernels[1:])
        plan = dataclasses.replace(plan, kernels=kernels, required_features=("cuda_cubin", "native_cpu"))
    with pytest.raises(Dsv41cError, match="body of another target") as python:
        verify(plan)
    with pytest.raises(Dsv41cError) as native:
        native_plan.verify(encode(plan))
    assert native.value.to_json() == python.value.to_json()
