"""The aten provider: calls are checked against torch's schemas, outputs keep their sizes, advice."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

import dsv41c.runtime.aten as aten
from dsv41c.runtime.load import load
from dsv41c.runtime.plan import schema as s
from dsv41c.runtime.plan.errors import Dsv41cError
from tests.unit.runtime.toy_artifact import write_artifact
from tests.unit.runtime.toy_plan import NORM, WIDTH, arg, norm_body, times, toy_plan

SQUARE = (s.TensorTag(0), s.TensorTag(0), s.MutableTag(3))


def refused(directory: Path, body: s.CompositeBody) -> Dsv41cError:
    """Loading the toy plan with this body in place of rms_norm."""
    plan = toy_plan()
    kernels = list(plan.kernels)
    kernels[NORM] = dataclasses.replace(kernels[NORM], body=body)
    with pytest.raises(Dsv41cError) as failure:
        load(write_artifact(directory / "artifact", dataclasses.replace(plan, kernels=tuple(kernels))))
    return failure.value


def with_call(index: int, call: s.Call) -> s.CompositeBody:
    body = norm_body()
    return dataclasses.replace(body, calls=(*body.calls[:index], call, *body.calls[index + 1:]))


@pytest.mark.parametrize(("call", "found"), [
    (s.Call("aten::mull", "out", SQUARE), "aten::mull"),
    (s.Call("aten::mul", "outt", SQUARE), "aten::mul.outt"),
    (s.Call("aten::mul", "out", (s.TensorTag(0), s.MutableTag(3))), "the schema has 3 arguments, found 2"),
    (s.Call("aten::mul", "out", (s.TensorTag(0), s.IntTag(2), s.MutableTag(3))),
     'aten::mul.out argument other: the schema needs Tensor, found {"i":2}'),
    (s.Call("aten::mul", "out", (s.TensorTag(0), s.NoneTag(), s.MutableTag(3))),
     "argument other: the schema needs Tensor"),
    (s.Call("aten::mean", "out",
            (s.TensorTag(0), s.IntListTag((-1,)), s.IntTag(1), s.NoneTag(), s.MutableTag(3))),
     "argument keepdim: the schema needs bool"),
    (s.Call("aten::mul", "out", (s.TensorTag(0), s.MutableTag(4), s.MutableTag(3))),
     "argument other: the schema does not write this tensor"),
])
def test_call_that_the_schema_refuses(tmp_path: Path, call: s.Call, found: str) -> None:
    error = refused(tmp_path, with_call(0, call))
    assert error.code == "DSV41C-E0703"
    assert error.subject == "kernel dsv41c::rms_norm cannot be prepared"
    assert found in error.found


def test_output_that_torch_would_resize(tmp_path: Path) -> None:
    """torch reshapes an out tensor of the wrong shape with a warning only; here it stops the load."""
    body = norm_body()
    flat = s.TempLocal("float32", (times(WIDTH, "rows"),), (1,), 0)
    changed = dataclasses.replace(body, locals=(*body.locals, flat), calls=(
        s.Call("aten::mul", "out", (s.TensorTag(0), s.TensorTag(0), s.MutableTag(7))), *body.calls))
    error = refused(tmp_path, changed)
    assert error.code == "DSV41C-E0802"
    assert "aten::mul.out resized or moved its output: found sizes [1, 16], planned [16]" in error.found
    assert error.where == "method decode, launch norm, 1 rows"


def test_launch_that_brings_other_sizes_than_the_template(tmp_path: Path) -> None:
    body = norm_body()
    changed = dataclasses.replace(body, locals=(arg(0, "float32", "rows", WIDTH // 2), *body.locals[1:]))
    error = refused(tmp_path, changed)
    assert error.code == "DSV41C-E0703"
    assert error.subject == "kernel dsv41c::rms_norm cannot be bound"
    found = "tensor 0 is dtype code 0, 1:16, 16:1 (size:stride), needed Float, 1:8, 8:1"
    assert found in error.found


def test_missing_library_comes_with_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Path:
        raise Dsv41cError("DSV41C-E0702", name, found="no such library", needed="it", do="`make install`")

    monkeypatch.setattr(aten, "library_path", missing)
    aten.aten_provider.cache_clear()
    with pytest.raises(Dsv41cError, match="make install"):
        load(write_artifact(tmp_path / "artifact"))
    aten.aten_provider.cache_clear()
