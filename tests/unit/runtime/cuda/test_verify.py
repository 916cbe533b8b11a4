"""CUDA bodies that must not run: the verifiers of both sides refuse them with the same words."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from dsv41c.runtime.plan import schema as s
from dsv41c.runtime.plan.codec import encode
from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.runtime.plan.verify import verify
from tests.unit.runtime.cuda.cuda_plan import toy
from tests.unit.runtime.plan import native_plan

SCALE = 1
Change = Callable[[s.CudaLaunch], s.CudaLaunch]


def with_params(*params: s.CudaParam) -> Change:
    return lambda launch: dataclasses.replace(launch, params=(*launch.params, *params))


def replaced(**fields: object) -> Change:
    return lambda launch: dataclasses.replace(launch, **fields)  # type: ignore[arg-type]


def changed(change: Change) -> s.Plan:
    """The toy plan with its `scale` launch changed."""
    plan = toy()[1]
    kernels = list(plan.kernels)
    body = kernels[SCALE].body
    assert isinstance(body, s.CudaBody)
    kernels[SCALE] = dataclasses.replace(kernels[SCALE], body=s.CudaBody(tuple(map(change, body.launches))))
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
    (replaced(block=(32, 0, 1)), "bad block"),
    (replaced(shared_bytes=-1), "bad shared memory"),
    (replaced(shared_bytes=232_449), "bad shared memory"),
    (with_params(s.TensorParam(-1)), "argument index out of range"),
    (with_params(s.TensorParam(2)), "argument index out of range"),
    (with_params(s.ScratchParam(1)), "parameter outside the scratch"),
    (with_params(s.Int32Param(2**31)), "parameter outside int32"),
    (with_params(s.Int64Param(s.Binary("floordiv", 1, s.Binary("-", "rows", 1)))), "division by less than 1"),
    (replaced(params=(s.TensorParam(0),)), "out is no parameter"),
])
def test_broken_body_is_refused_in_the_same_words(change: Change, subject: str) -> None:
    plan = changed(change)
    with pytest.raises(Dsv41cError) as python:
        verify(plan)
    with pytest.raises(Dsv41cError) as native:
        native_plan.verify(encode(plan))
    assert native.value.to_json() == python.value.to_json()
    assert subject in python.value.subject


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
