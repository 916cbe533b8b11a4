"""Errors of a real device and driver: typed, nothing stays allocated, and the same process then runs an artifact."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from dsv41c.runtime.load import load
from dsv41c.runtime.plan import schema as s
from dsv41c.runtime.plan.errors import Dsv41cError
from tests.native.failing_driver import FailingDriver
from tests.unit.runtime.cuda.cuda_plan import COLUMNS, CudaPlan, toy, transferred, write_artifact
from tests.unit.runtime.cuda.test_step import decode, expected
from tests.unit.runtime.toy_artifact import rows_of

pytestmark = pytest.mark.gpu
KERNELS = Path(__file__).parent / "toy_kernels.cu"
OTHER = {"sm_90a": "sm_100a", "sm_100a": "sm_90a"}
TOKENS = [3, 4, 5]
Make = Callable[[CudaPlan, s.Plan], Path]


@pytest.fixture(scope="module")
def target() -> str:
    major, minor = torch.cuda.get_device_capability(0)
    return f"sm_{major}{minor}a"


@pytest.fixture(scope="module")
def image(target: str, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    cubin = tmp_path_factory.mktemp("kernels") / "toy.cubin"
    subprocess.run(["nvcc", "-cubin", "-std=c++17", f"-arch={target}", "-o", str(cubin), str(KERNELS)], check=True)
    return cubin.read_bytes()


@pytest.fixture(scope="module")
def good(image: bytes, target: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_artifact(tmp_path_factory.mktemp("good") / "artifact", *toy(target=target, image=image))


def free_bytes() -> int:
    gc.collect()
    torch.cuda.synchronize()
    return int(torch.cuda.mem_get_info(0)[0])


def run_good(artifact: Path) -> None:
    with load(artifact, poison=7) as runtime:
        assert np.array_equal(decode(runtime, rows_of(1, TOKENS)), expected(TOKENS))
        assert np.array_equal(decode(runtime, rows_of(0, TOKENS), eager=True), expected(TOKENS))


@pytest.fixture(autouse=True)
def nothing_stays(good: Path) -> Iterator[None]:
    """As much memory is free after a test as before it, and a sound artifact still runs."""
    run_good(good)  # whatever the driver keeps after a first use is there before
    before = free_bytes()
    yield
    assert free_bytes() >= before
    run_good(good)
    assert free_bytes() >= before


def refused(artifact: Path, code: str, *, device: int = 0, driver: Path | None = None) -> Dsv41cError:
    with pytest.raises(Dsv41cError) as failure:
        load(artifact, device=device, cuda_driver=driver)
    assert failure.value.code == f"DSV41C-{code}", failure.value
    return failure.value


@pytest.mark.parametrize("mode", ["graphs", "eager"])
def test_copies_memsets_and_maps_do_their_work(image: bytes, target: str, tmp_path: Path, mode: str) -> None:
    artifact = write_artifact(tmp_path / "a", *transferred(target=target, image=image))
    with load(artifact, cuda_mode=mode, poison=7) as runtime:  # type: ignore[arg-type]
        for count in (1, 4, 8):
            tokens = [3 + i for i in range(count)]
            factors = [token if i < -(-count // 2) else 0 for i, token in enumerate(tokens)]
            wanted = np.outer(factors, np.arange(1, COLUMNS + 1)).astype(np.float32)
            assert np.array_equal(decode(runtime, rows_of(1, tokens)), wanted)


def test_artifact_for_another_architecture(image: bytes, target: str, tmp_path: Path) -> None:
    error = refused(write_artifact(tmp_path / "a", *toy(target=OTHER[target], image=image)), "E0706")
    assert OTHER[target] in error.needed and error.exit_code == 5


@pytest.mark.parametrize("beyond", [False, True])
def test_device_index_out_of_range(good: Path, beyond: bool) -> None:
    count = torch.cuda.device_count()
    error = refused(good, "E0705", device=count if beyond else -1)
    assert error.found == f"{count} devices"


def test_reservation_larger_than_the_device(image: bytes, target: str, tmp_path: Path) -> None:
    size = int(torch.cuda.mem_get_info(0)[1]) * 2 // 64 * 64
    error = refused(write_artifact(tmp_path / "a", *toy(target=target, image=image, more_arena=size)), "E0701")
    assert "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (2)" in error.found and "bytes of device memory" in error.needed


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> FailingDriver:
    return FailingDriver.open(FailingDriver.build(tmp_path_factory.mktemp("failing")))


def test_each_allocation_failing_once(good: Path, failing: FailingDriver) -> None:
    failing.fail(0)
    load(good, cuda_driver=failing.path).close()
    calls = failing.calls()
    assert calls >= 10  # memory, pinned memory, stream, events, a module, a graph and its instance for each bucket
    before = free_bytes()
    for n in range(1, calls + 1):
        failing.fail(n)
        error = refused(good, "E0701", driver=failing.path)
        assert "CUDA_ERROR_OUT_OF_MEMORY (2)" in error.found
        failing.fail(0)
        assert free_bytes() >= before, f"call {n} of {calls}"


def test_no_driver_library(good: Path) -> None:
    assert "/nowhere/libcuda.so.1" in refused(good, "E0704", driver=Path("/nowhere/libcuda.so.1")).found


def test_no_gpu(good: Path) -> None:
    """In a process that sees no device; torch is not asked, since it keeps what it saw first."""
    code = f"""
from dsv41c.runtime.load import load
from dsv41c.runtime.plan.errors import Dsv41cError
try:
    load({str(good)!r})
except Dsv41cError as error:
    print(error.code, error.exit_code, error.found)
"""
    run = subprocess.run([sys.executable, "-c", code], env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
                         capture_output=True, text=True, check=True)
    assert run.stdout.startswith("DSV41C-E0705 5 ") and "CUDA_ERROR_NO_DEVICE" in run.stdout, run.stdout + run.stderr
