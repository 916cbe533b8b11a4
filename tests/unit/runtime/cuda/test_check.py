"""Full checks are for the CPU: a CUDA artifact is refused with a word on what is checked there."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dsv41c.runtime.load import Runtime
from dsv41c.runtime.plan.errors import Dsv41cError
from tests.unit.runtime.cuda.cuda_plan import toy


def test_checks_of_a_cuda_artifact_are_refused(opened: Callable[..., Runtime]) -> None:
    opened(*toy(), check="off", poison=255)
    with pytest.raises(Dsv41cError) as failure:
        opened(*toy(), check="full")
    error = failure.value
    assert (error.code, error.subject, error.found) == ("DSV41C-E0901", "check full", "an artifact for sm_90a")
    assert "poison=255, which fills the arena before every method" in error.do
