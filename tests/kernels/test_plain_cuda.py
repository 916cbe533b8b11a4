"""Plain CUDA kernels, run thread by thread on the host, against the torch references."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dsv41c.compiler.kernels.plain import SOURCES, cuda_source
from dsv41c.compiler.ops import mega
from dsv41c.compiler.ops.catalog import OPS
from dsv41c.compiler.tensor_shape import TensorShape
from dsv41c.tools.bench.op_case import Case, judge, results, same_bits
from dsv41c.tools.bench.op_cases import real_cases, small_cases
from dsv41c.tools.bench.plain_launch import Bound
from tests.kernels.emulation.emulator import emulate

SMALL = small_cases()
PADS = 3

PRIMITIVE = {name for name, spec in OPS.items() if spec.composition is None} - {spec.name for spec in mega.SPECS}
COPIES = {"expert_dispatch", "expert_combine"}  # vanish at world size 1; ATen copies where they are left


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("emulation")


def emulated(case: Case, libraries: Path, skewed: bool = False) -> Bound:
    source = cuda_source(case.spec, case.shapes())
    assert source is not None
    return emulate(case, source, libraries, skewed)


@pytest.mark.parametrize("case", SMALL, ids=lambda c: f"{c.op}-{c.name}".replace(" ", "_"))
def test_kernel_equals_the_reference_and_its_rows_stand_alone(case: Case, libraries: Path) -> None:
    reference = case.copied()
    want = results(case.spec.reference(*reference))
    got = emulated(case, libraries)
    _, wrong = judge(case, [*(x[case.live_of(x)] for x in got.outputs), *got.written],
                     [*(x[case.live_of(x)] for x in want), *case.written(reference)])
    assert not wrong, wrong
    assert got.guards_hold()
    # More pads, and warps that run ahead, change no bit of a live row or of the state.
    padded = emulated(case.with_pads(PADS), libraries, skewed=True)
    assert padded.guards_hold()
    for a, b in zip(got.outputs, padded.outputs, strict=True):
        assert same_bits(a[case.live_of(a)], b[: len(a)][case.live_of(a)])
    for a, b in zip(got.written, padded.written, strict=True):
        assert same_bits(a, b)


def test_every_op_has_a_plain_kernel_and_a_case() -> None:
    """A fused op is a kernel itself, or a sequence of the others."""
    assert set(SOURCES) == (PRIMITIVE - COPIES) | {"mega_gate"}
    assert {case.op for case in SMALL} == set(SOURCES)


@pytest.mark.parametrize("op", sorted(SOURCES))
def test_macros_do_not_depend_on_the_rows(op: str) -> None:
    """One cubin serves every number of rows."""
    for case in (c for c in SMALL if c.op == op):
        few, many = cuda_source(case.spec, case.shapes()), cuda_source(case.spec, case.with_pads(5).shapes())
        assert few is not None and few == many


def test_real_shapes_have_plain_kernels() -> None:
    for case in real_cases():
        assert cuda_source(case.spec, case.shapes()) is not None, case.name


def test_unknown_shapes_have_none() -> None:
    case = next(c for c in SMALL if c.op == "moe_experts")
    shapes = case.shapes()
    shapes[0] = TensorShape(torch.float64, shapes[0].sizes)
    assert cuda_source(case.spec, shapes) is None
