"""build_kernel gives a cubin and its launch record without a GPU, keeps it, and refuses what a plan could not trust."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dsv41c.compiler import cuda_bodies
from dsv41c.compiler.kernels import build, catalog, nvcc
from dsv41c.compiler.kernels.build import build_kernel
from dsv41c.compiler.kernels.source import (
    Float,
    Int32,
    KernelSource,
    LaunchRecord,
    MapLayout,
    Scratch,
    Tensor,
    TensorMap,
)
from dsv41c.compiler.kernels.tilelang_lowering import LoweredMap
from dsv41c.runtime.plan import schema
from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.runtime.plan.expr import Binary, evaluate
from dsv41c.runtime.plan.verify_tensor_map import check_tensor_map, map_span

SELECT = catalog.mega_gate(128, 16, 2, 1.5).launches[1]
NORM = catalog.rmsnorm_mxfp8(64, 1e-20).launches[0]

SPILLING = """
extern "C" __global__ void __launch_bounds__(1024) spill(const float* x, float* y, int n) {
  float v[96];
  for (int i = 0; i < 96; ++i) v[i] = x[i * n + threadIdx.x];
  for (int k = 0; k < n; ++k)
    for (int i = 0; i < 96; ++i) v[i] = v[i] * v[(i + 1) % 96] + v[(i + 7) % 96];
  for (int i = 0; i < 96; ++i) y[i * n + threadIdx.x] = v[i];
}
"""


def source_of(text: str, folder: Path, **fields: object) -> KernelSource:
    path = folder / "kernel.cu"
    path.write_text(text)
    bindings = (("x", Tensor(0)), ("y", Tensor(1)), ("n", Int32("rows")))
    return KernelSource(**{"file": str(path), "constants": (), "bindings": bindings, **fields})


@pytest.mark.kernels
@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
@pytest.mark.parametrize("source", [SELECT, NORM], ids=["cuda", "tilelang"])
def test_a_kernel_builds_without_a_gpu(source: KernelSource, target: str, kernel_cache: Path) -> None:
    built = build_kernel(source, target, kernel_cache)
    assert built.cubin.startswith(b"\x7fELF")
    assert built.record.spill_bytes == 0
    assert 0 < built.record.registers <= 255


@pytest.mark.kernels
def test_parameters_follow_the_kernels_own_order(kernel_cache: Path) -> None:
    """TileLang sorts parameters by name: the record is in that order, not in the builder's."""
    record = build_kernel(NORM, "sm_90a", kernel_cache).record
    assert record.symbol == "rmsnorm_mxfp8_kernel"
    assert record.params == (Tensor(3), Tensor(4), Tensor(1), Tensor(0), Tensor(2), Float(1e-20), Int32("rows"))


@pytest.mark.kernels
def test_tilelang_grid_becomes_a_plan_expression(kernel_cache: Path) -> None:
    record = build_kernel(NORM, "sm_90a", kernel_cache).record
    assert record.block == (128, 1, 1)
    assert [evaluate(record.grid[0], {"rows": n}) for n in (1, 16, 17)] == [1, 1, 2]


@pytest.mark.kernels
@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
def test_tilelangs_tensor_map_becomes_a_parameter(target: str, kernel_cache: Path) -> None:
    """The mix weights: [80 pieces, 48 rows, 256 columns] of bfloat16, 64 rows and columns at a time."""
    record = build_kernel(catalog.mega_mhc(5120, 20, 1e-20, 1e-6, maps=True).launches[0], target, kernel_cache).record
    (found,) = (p for p in record.params if isinstance(p, TensorMap))
    layout = found.layout
    assert (found.tensor, layout.dtype) == (Tensor(5), "bfloat16")
    assert (layout.sizes, layout.strides) == ((256, 48, 80), (512, 24576))
    assert layout.box[1:] == (64, 1) and layout.element_strides == (1, 1, 1) and layout.oob_fill == "zero"
    assert Tensor(5) not in record.params
    assert LaunchRecord.from_json(json.loads(json.dumps(record.to_json()))) == record
    param = cuda_bodies._param(found)
    assert isinstance(param, schema.TensorMapParam)
    check_tensor_map(param, {"rows": 1}, 0, "here")
    assert map_span(param, {"rows": 1}, "here") == 80 * 48 * 256 * 2


def test_a_map_needs_a_pointer_and_takes_the_rows_from_the_bindings() -> None:
    layout = MapLayout("float32", (64, "n"), (256,), (8, 1), (1, 1), "none", "none", "128b", "zero")
    lowered = LoweredMap("x", layout)
    bound = build._with_maps(NORM, {"x": Scratch(16), "n": Int32("rows")}, {"x_desc": lowered})
    assert bound == {"n": Int32("rows"), "x_desc": TensorMap(Scratch(16), replace(layout, sizes=(64, "rows")))}
    with pytest.raises(Dsv41cError, match="tensor map x_desc of x"):
        build._with_maps(NORM, {"x": Int32(1)}, {"x_desc": lowered})


@pytest.mark.kernels
def test_the_same_source_gives_the_same_cubin() -> None:
    assert build_kernel(SELECT, "sm_90a", None).digest == build_kernel(SELECT, "sm_90a", None).digest


@pytest.mark.kernels
def test_a_kept_kernel_is_not_compiled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = build_kernel(SELECT, "sm_90a", tmp_path)
    monkeypatch.setattr(nvcc, "compile_text", lambda *_: pytest.fail("compiled again"))
    assert build_kernel(SELECT, "sm_90a", tmp_path) == first


@pytest.mark.kernels
def test_a_damaged_cache_entry_is_built_again(tmp_path: Path) -> None:
    first = build_kernel(SELECT, "sm_90a", tmp_path)
    (entry,) = tmp_path.glob("*.cubin")
    entry.write_bytes(b"damaged")
    assert build_kernel(SELECT, "sm_90a", tmp_path) == first


@pytest.mark.kernels
def test_register_spills_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Dsv41cError, match="spills") as caught:
        build_kernel(source_of(SPILLING, tmp_path), "sm_90a", None)
    assert caught.value.code == "DSV41C-E0302"
    stated = source_of(SPILLING, tmp_path, spill_limit_bytes=100_000)
    assert build_kernel(stated, "sm_90a", None).record.spill_bytes > 0


@pytest.mark.kernels
def test_compiler_errors_reach_the_user(tmp_path: Path) -> None:
    broken = SPILLING.replace("float v[96];", "")
    with pytest.raises(Dsv41cError, match='"v" is undefined'):
        build_kernel(source_of(broken, tmp_path), "sm_90a", None)


@pytest.mark.kernels
def test_key_changes_with_constants_and_target() -> None:
    other = catalog.mega_gate(128, 16, 3, 1.5).launches[1]
    keys = {build.cache_key(SELECT, "sm_90a"), build.cache_key(SELECT, "sm_100a"), build.cache_key(other, "sm_90a")}
    assert len(keys) == 3


def test_missing_nvcc_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    nvcc.nvcc_version.cache_clear()
    with pytest.raises(Dsv41cError) as caught:
        build_kernel(SELECT, "sm_90a", None)
    assert (caught.value.code, caught.value.exit_code) == ("DSV41C-E0303", 3)


def test_unknown_target_is_refused() -> None:
    with pytest.raises(Dsv41cError, match="sm_80"):
        build_kernel(SELECT, "sm_80", None)


@pytest.mark.parametrize("bindings", [(("x", Tensor(0)),), (("x", Tensor(0)), ("y", Int32(1)), ("n", Int32("rows")))],
                         ids=["missing", "wrong kind"])
def test_bindings_must_fit_the_signature(bindings: tuple[tuple[str, object], ...], tmp_path: Path) -> None:
    source = source_of(SPILLING, tmp_path, bindings=bindings)
    signature = nvcc.parse_signature(SPILLING, "kernel.cu")
    with pytest.raises(Dsv41cError, match="E0302"):
        build._bind(source, signature, dict(source.bindings))


def test_signature_of_several_lines() -> None:
    head = 'extern "C" __global__ void __launch_bounds__(T, 2)'
    text = head + "\nname(const float* __restrict__ a,\n  float e, int64_t n) {"
    assert nvcc.parse_signature(text, "t").params == (("pointer", "a"), ("float", "e"), ("int64_t", "n"))


def test_record_survives_json() -> None:
    record = LaunchRecord("k", (Tensor(1), Float(0.1), Int32(Binary("ceildiv", "rows", 4))),
                          (Binary("+", "rows", 1), 2, 1), (128, 1, 1), 1024, 40, 0)
    assert LaunchRecord.from_json(json.loads(json.dumps(record.to_json()))) == record
