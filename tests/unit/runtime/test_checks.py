"""Full checks: every fault of a kernel or of a plan's effects is trapped, a right run is not, options are strict."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from dsv41c.runtime.load import Runtime, load
from dsv41c.runtime.plan import schema as s
from dsv41c.runtime.plan.errors import Dsv41cError
from tests.native.faulty_kernels import FaultyKernels
from tests.unit.runtime.toy_artifact import expected_logits, identity, rows_of, upload_of, write_artifact
from tests.unit.runtime.toy_plan import NORM, WIDTH, norm_body, times, toy_plan

TOKENS = (1, 2, 3)  # in a bucket of 4 rows: one pad row


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_artifact(tmp_path_factory.mktemp("toy") / "artifact")


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> FaultyKernels:
    return FaultyKernels.build(tmp_path_factory.mktemp("faulty"))


def run(runtime: Runtime) -> np.ndarray:
    upload = upload_of(rows_of(0, TOKENS))
    runtime.step(upload, identity(3), identity(3))
    return runtime.output("logits").copy()


@pytest.mark.parametrize(("fault", "entry", "found"), [
    ("write_beyond_output", "linear", "an undeclared write into io byte "),
    ("write_input", "linear", "the launch changed value normed, which it declares as in"),
    ("read_output", "linear", "row 0 of value logits depends on memory that nobody has written"),
    ("read_scratch", "linear", "row 0 of value logits depends on memory that nobody has written"),
    ("read_beyond_input", "linear", "row 0 of value logits depends on memory that nobody has written"),
    ("read_last_row", "linear", "row 0 of value logits depends on memory that nobody has written, or on a pad row"),
    ("leave_first_row", "greedy_token", "row 0 of output tokens was never written"),
    ("leave_first_row", "linear", "row 0 of output logits was never written"),
])
def test_a_faulty_kernel_is_trapped(artifact: Path, kernels: FaultyKernels, fault: str, entry: str,
                                    found: str) -> None:
    """Unchecked, the same launch goes unnoticed."""
    for check in ("off", "full"):
        with kernels.open(artifact, check) as runtime:
            kernels.set(fault, entry)
            if check == "off":
                run(runtime)
                continue
            with pytest.raises(Dsv41cError) as failure:
                run(runtime)
    error = failure.value
    assert error.code == "DSV41C-E0805" and error.subject == "a check failed"
    assert found in error.found
    assert error.where is not None and error.where.startswith("method decode, ")
    assert ", 4 rows, step " in error.where and error.where.endswith(", order 0")


def test_a_write_into_state_that_is_not_declared(artifact: Path, kernels: FaultyKernels) -> None:
    for check in ("off", "full"):
        with kernels.open(artifact, check) as runtime:
            table = runtime.state("page_table")
            kernels.set("write_elsewhere", "linear", table.ctypes.data)
            if check == "off":
                held = table[0, 0]
                run(runtime)
                assert table[0, 0] != held
                continue
            with pytest.raises(Dsv41cError, match="E0805") as failure:
                run(runtime)
    assert "an undeclared write into state page_table" in failure.value.found


def test_state_that_is_written_and_declared_as_read(tmp_path: Path) -> None:
    """The greedy token goes into slot_token; a plan that calls it an input verifies, and is wrong."""
    plan = toy_plan()

    def declared_as_in(method: s.Method) -> s.Method:
        (segment,) = method.steps
        launches = tuple(dataclasses.replace(each, tensors=tuple(
            s.In(t.value) if each.name == "greedy" and isinstance(t, s.InOut) else t for t in each.tensors))
            for each in segment.launches)
        return dataclasses.replace(method, steps=(s.Segment(launches),))

    wrong = dataclasses.replace(plan, methods=tuple(map(declared_as_in, plan.methods)))
    path = write_artifact(tmp_path / "artifact", wrong)
    with load(path, check="off") as runtime:
        run(runtime)
        assert runtime.state("slot_token")[0] >= 0
    with load(path, check="full") as runtime, pytest.raises(Dsv41cError) as failure:
        run(runtime)
    assert failure.value.code == "DSV41C-E0805"
    assert "the launch changed value slot_token, which it declares as in" in failure.value.found


def test_an_output_that_torch_resizes(tmp_path: Path) -> None:
    body, plan = norm_body(), toy_plan()
    flat = s.TempLocal("float32", (times(WIDTH, "rows"),), (1,), 0)
    resized = s.Call("aten::mul", "out", (s.TensorTag(0), s.TensorTag(0), s.MutableTag(7)))
    kernels = list(plan.kernels)
    kernels[NORM] = dataclasses.replace(kernels[NORM], body=dataclasses.replace(
        body, locals=(*body.locals, flat), calls=(resized, *body.calls)))
    with pytest.raises(Dsv41cError) as failure:
        load(write_artifact(tmp_path / "artifact", dataclasses.replace(plan, kernels=tuple(kernels))), check="full")
    assert "resized or moved its output" in failure.value.found


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_right_kernels_pass_and_give_the_same_bits(artifact: Path, kernels: FaultyKernels, seed: int) -> None:
    with kernels.open(artifact, "off") as plain, kernels.open(artifact, f"full:{seed}") as checked:
        expected = run(plain)
        np.testing.assert_array_equal(run(checked), expected)
        np.testing.assert_allclose(expected, expected_logits(TOKENS), rtol=1e-4, atol=1e-4)
        for name in ("slot_position", "slot_token", "page_table"):
            np.testing.assert_array_equal(checked.state(name)[:-1], plain.state(name)[:-1], err_msg=name)


def test_launches_run_twice_in_an_order_that_the_seed_draws(artifact: Path, kernels: FaultyKernels) -> None:
    """In `head`, taking the row table and the way to the logits need nothing of each other."""
    upload = upload_of(rows_of(0, TOKENS))

    def orders(seed: int) -> list[list[str]]:
        with kernels.open(artifact, f"full:{seed}") as runtime:
            return [order(runtime) for _ in range(8)]

    def order(runtime: Runtime) -> list[str]:
        kernels.set("none")
        runtime.step(upload, identity(3), np.array([2], np.int32))
        np.testing.assert_allclose(runtime.output("logits"), expected_logits(TOKENS)[2:], rtol=1e-4, atol=1e-4)
        return kernels.order()

    zero, one = orders(0), orders(1)
    assert all(launches[::2] == launches[1::2] for launches in zero)  # each one twice, one run behind the other
    tails = {tuple(launches[4::2]) for launches in zero}
    assert tails == {("take_row_table", "linear", "greedy_token"), ("linear", "take_row_table", "greedy_token")}
    assert zero[1:] == one[:-1], "the seed advances by one with each step"
    assert orders(0) == zero


@pytest.mark.parametrize("value", ["fast", "full:", "full:-1", "full:x", "FULL", ""])
def test_unknown_checks_are_refused(artifact: Path, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    with pytest.raises(Dsv41cError) as given:
        load(artifact, check=value)
    monkeypatch.setenv("DSV41C_CHECK", value)
    with pytest.raises(Dsv41cError) as from_environment:
        load(artifact)
    for failure, subject in ((given, "check"), (from_environment, "DSV41C_CHECK")):
        assert (failure.value.code, failure.value.subject, failure.value.found) == ("DSV41C-E0901", subject, value)
        assert failure.value.needed.startswith("off, full or full:SEED")


def test_the_environment_asks_where_the_caller_does_not(artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSV41C_CHECK", "full:5")
    with load(artifact) as checked, load(artifact, check="off") as plain:
        assert checked.report()["check"] == "full:5"
        assert plain.report()["check"] == "off"
