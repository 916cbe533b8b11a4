"""The fake driver, built once per test run, and artifacts loaded on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import dsv41c.runtime.load as loading
from dsv41c.runtime.load import Runtime, load
from dsv41c.runtime.plan import schema as s
from tests.conftest import OncePerRun
from tests.unit.runtime.cuda.cuda_plan import CudaPlan, write_artifact
from tests.unit.runtime.cuda.fake_driver import ROOT, SOURCES, Driver, build

Opened = Callable[..., Runtime]


@pytest.fixture(scope="session")
def built_driver(once_per_run: OncePerRun) -> Driver:
    texts = {name: (ROOT / "tests/native" / name).read_text() for name in SOURCES}
    return Driver.open(once_per_run("fake_driver", texts, build) / "libfake_cuda.so")


@pytest.fixture
def driver(built_driver: Driver, monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    """Fresh for each test, which must leave nothing behind."""
    monkeypatch.setattr(loading, "aten_provider", built_driver.aten_provider)
    built_driver.reset()
    yield built_driver
    built_driver.assert_clean()


@pytest.fixture
def opened(driver: Driver, tmp_path: Path) -> Iterator[Opened]:
    """`opened(built, plan, **options)`: the plan as an artifact, loaded on the fake driver."""
    runtimes: list[Runtime] = []

    def open_plan(built: CudaPlan, plan: s.Plan, **options: Any) -> Runtime:
        artifact = tmp_path / f"artifact{len(runtimes)}"
        runtimes.append(load(write_artifact(artifact, built, plan), cuda_driver=driver.path, **options))
        return runtimes[-1]

    yield open_plan
    for runtime in runtimes:
        runtime.close()
