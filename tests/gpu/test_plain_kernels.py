"""Every case of the plain kernels on a real GPU, with the cubins that `gpu_ops.py build` left."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsv41c.tools.bench.gpu_check import check_case
from dsv41c.tools.bench.op_case import Case
from dsv41c.tools.bench.op_cases import real_cases, small_cases
from dsv41c.tools.bench.plain_cubins import Cubins

pytestmark = pytest.mark.gpu
DIRECTORY = Path(__file__).parents[2] / "build" / "gpu" / "plain"


@pytest.fixture(scope="session")
def cubins() -> Cubins:
    return Cubins(DIRECTORY)


@pytest.mark.parametrize("case", [*small_cases(), *real_cases()], ids=lambda c: f"{c.op}-{c.name}".replace(" ", "_"))
def test_kernel_equals_the_reference(case: Case, cubins: Cubins) -> None:
    verdict = check_case(case, cubins)
    assert not verdict.wrong, f"{verdict.wrong} (error {verdict.error:.3g})"
