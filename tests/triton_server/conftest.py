"""Fixtures of the tests with a real server. They run in the server's own environment: `make test-triton`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.triton_server.server import Server, running


@pytest.fixture(scope="session")
def prepared(request: pytest.FixtureRequest) -> Path:
    return Path(request.config.getoption("triton")).resolve()


@pytest.fixture(scope="session")
def counting(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose engine counts upwards; tests add their models."""
    repository = tmp_path_factory.mktemp("triton") / "counting"
    repository.mkdir()
    with running(prepared, "plain/backends", repository) as server:
        yield server


@pytest.fixture(scope="session")
def serving(prepared: Path) -> Iterator[Server]:
    """A server with the real engine and all models of the prepared repository, in a copy that tests may change."""
    repository = prepared / "serving"
    shutil.rmtree(repository, ignore_errors=True)
    shutil.copytree(prepared / "repository", repository, copy_function=os.link)
    with running(prepared, "real", repository, "--load-model=*") as server:
        yield server
