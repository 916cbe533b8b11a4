"""Errors of the device: each is typed, nothing stays allocated, and the process goes on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import dsv41c.runtime.load as loading
from dsv41c.runtime.aten import aten_provider
from dsv41c.runtime.load import Runtime, load
from dsv41c.runtime.plan.errors import Dsv41cError
from tests.unit.runtime.cuda.cuda_plan import toy, transferred, write_artifact
from tests.unit.runtime.cuda.fake_driver import Driver
from tests.unit.runtime.cuda.test_step import decode, expected
from tests.unit.runtime.toy_artifact import rows_of

Opened = Callable[..., Runtime]
RUNTIME_CODES = {"DSV41C-E0701", "DSV41C-E0703", "DSV41C-E0704", "DSV41C-E0802"}


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_artifact(tmp_path_factory.mktemp("cuda") / "artifact", *toy(with_fallback=True))


def refused(artifact: Path, code: str, driver: str | Path, device: int = 0) -> Dsv41cError:
    with pytest.raises(Dsv41cError) as failure:
        load(artifact, cuda_driver=driver, device=device)
    assert failure.value.code == f"DSV41C-{code}", failure.value
    return failure.value


def test_no_driver_library(artifact: Path, driver: Driver) -> None:
    error = refused(artifact, "E0704", "/nowhere/libcuda.so.1")
    assert "/nowhere/libcuda.so.1" in error.found and error.exit_code == 3


def test_library_that_is_no_driver(artifact: Path, driver: Driver) -> None:
    assert refused(artifact, "E0704", "libm.so.6").found == "no function cuGetErrorName"


def test_driver_that_does_not_start(artifact: Path, driver: Driver) -> None:
    driver.fail(1, 803)
    assert refused(artifact, "E0704", driver.path).found.startswith("cuInit: CUDA_ERROR_FAKE (803)")


def test_no_device(artifact: Path, driver: Driver) -> None:
    driver.reset(devices=0)
    assert "CUDA_ERROR_NO_DEVICE" in refused(artifact, "E0705", driver.path).found


@pytest.mark.parametrize("device", [-1, 2])
def test_device_index_out_of_range(artifact: Path, driver: Driver, device: int) -> None:
    driver.reset(devices=2)
    error = refused(artifact, "E0705", driver.path, device)
    assert (error.subject, error.found) == (f"CUDA device {device}", "2 devices")


@pytest.mark.parametrize(("target", "capability"), [("sm_90a", (10, 0)), ("sm_90a", (8, 9)), ("sm_100a", (9, 0)),
                                                    ("sm_100a", (10, 3))])
def test_artifact_for_another_architecture(
    tmp_path: Path, driver: Driver, target: str, capability: tuple[int, int]
) -> None:
    driver.reset(capability=capability)
    error = refused(write_artifact(tmp_path / "a", *toy(target=target)), "E0706", driver.path)
    assert error.found == f"compute capability {capability[0]}.{capability[1]}"
    assert target in error.needed and error.exit_code == 5


def test_other_device_and_architecture_work(tmp_path: Path, driver: Driver) -> None:
    driver.reset(devices=3, capability=(10, 0))
    with load(write_artifact(tmp_path / "a", *toy(target="sm_100a")), cuda_driver=driver.path, device=2) as runtime:
        assert runtime.report()["cuda"]["device"] == 2


def test_memory_that_the_device_lacks(artifact: Path, driver: Driver) -> None:
    driver.reset(memory=1024)
    error = refused(artifact, "E0701", driver.path)
    assert "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (2)" in error.found and "bytes of device memory" in error.needed


def test_failing_node_is_named(artifact: Path, driver: Driver) -> None:
    load(artifact, cuda_driver=driver.path).close()
    calls = driver.report()["log"].index("cuGraphAddKernelNode") + 2
    driver.reset()
    driver.fail(calls)
    error = refused(artifact, "E0703", driver.path)
    assert error.found.startswith("cuGraphAddKernelNode: CUDA_ERROR_FAKE (999)")
    assert error.where == "method decode, launch scale, 1 rows, node 1"


def test_missing_and_altered_cubin(tmp_path: Path, driver: Driver) -> None:
    artifact = write_artifact(tmp_path / "a", *toy())
    cubin = next((artifact / "kernels").iterdir())
    data = bytearray(cubin.read_bytes())
    data[0] ^= 1
    cubin.write_bytes(data)
    assert cubin.stem == refused(artifact, "E0602", driver.path).needed
    cubin.unlink()
    assert refused(artifact, "E0601", driver.path).subject.endswith(".cubin")


def test_symbol_that_the_cubin_lacks(tmp_path: Path, driver: Driver) -> None:
    built, plan = toy()
    artifact = write_artifact(tmp_path / "a", built, plan)
    text = (artifact / "plan.json").read_text().replace("test_scale", "test_scald")
    (artifact / "plan.json").write_text(text)
    manifest = json.loads((artifact / "dsv41c.json").read_text())
    digest = hashlib.sha256(text.encode()).hexdigest()
    manifest["files"]["plan.json"] = {"bytes": len(text), "sha256": digest}
    (artifact / "dsv41c.json").write_text(json.dumps(manifest | {"plan_digest": digest}))
    error = refused(artifact, "E0703", driver.path)
    assert error.where is not None and error.where.startswith("function test_scald of cubin ")


def test_torch_without_cuda_runs_no_fallback(artifact: Path, driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "aten_provider", aten_provider)
    if torch.cuda.is_available():  # then the real provider would write to what is no device memory
        monkeypatch.setattr(loading, "aten_provider", driver.aten_provider)
        load(artifact, cuda_driver=driver.path).close()
        return
    error = refused(artifact, "E0703", driver.path)
    assert error.where == "method decode, launch plus_one, 1 rows"
    assert error.found.startswith("aten: this torch has no CUDA")


def use(artifact: Path, driver: Driver, mode: str) -> None:
    """All that touches the device: load, a bucketed and an eager step, output, state, bench, close."""
    with load(artifact, cuda_driver=driver.path, cuda_mode=mode, poison=7) as runtime:  # type: ignore[arg-type]
        decode(runtime, rows_of(0, [1, 2]))
        decode(runtime, rows_of(0, [1, 2, 3]), eager=True)
        runtime.write_state("slot_position", runtime.state("slot_position"))
        if mode == "graphs":
            runtime.graph_bench(replays=1)


@pytest.fixture(scope="module")
def artifact_with_transfers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_artifact(tmp_path_factory.mktemp("cuda") / "artifact", *transferred())


@pytest.mark.parametrize(("call", "node"), [("cuGraphAddMemsetNode", 1), ("cuGraphAddMemcpyNode", 2)])
def test_failing_copy_or_memset_is_named(artifact_with_transfers: Path, driver: Driver, call: str, node: int) -> None:
    load(artifact_with_transfers, cuda_driver=driver.path).close()
    calls = driver.report()["log"].index(call) + 1
    driver.reset()
    driver.fail(calls)
    error = refused(artifact_with_transfers, "E0703", driver.path)
    assert error.found.startswith(f"{call}: CUDA_ERROR_FAKE (999)")
    assert error.where == f"method decode, launch copies, 1 rows, node {node}"


@pytest.mark.parametrize("mode", ["graphs", "eager"])
def test_each_call_of_transfers_and_maps_failing_once(
    artifact_with_transfers: Path, driver: Driver, mode: str
) -> None:
    test_each_call_failing_once(artifact_with_transfers, driver, mode, 719)


@pytest.mark.parametrize("mode", ["graphs", "eager"])
@pytest.mark.parametrize("result", [2, 719])
def test_each_call_failing_once(artifact: Path, driver: Driver, mode: str, result: int) -> None:
    use(artifact, driver, mode)
    calls = driver.report()["calls"]
    failed = 0
    for n in range(1, calls + 1):
        driver.reset()
        driver.fail(n, result)
        try:
            use(artifact, driver, mode)
        except Dsv41cError as error:
            assert error.code in RUNTIME_CODES, error
            assert f"({result})" in error.found, error
            failed += 1
        driver.assert_clean()
    assert failed > calls // 3  # releases may fail without harm
    driver.reset()
    use(artifact, driver, mode)


def test_failed_step_leaves_a_runtime_that_closes(opened: Opened, driver: Driver) -> None:
    runtime = opened(*toy(with_fallback=True))
    driver.library.stub_aten_fail(1)
    with pytest.raises(Dsv41cError, match="E0802") as failure:
        decode(runtime, rows_of(0, [1]))
    assert failure.value.where == "method decode, launch plus_one, 1 rows"
    driver.library.stub_aten_fail(0)
    assert (decode(runtime, rows_of(0, [2])) == expected([2], plus=1)).all()


def test_loading_many_times_leaves_nothing(artifact: Path, driver: Driver) -> None:
    for _ in range(20):
        use(artifact, driver, "graphs")
    driver.assert_clean()
