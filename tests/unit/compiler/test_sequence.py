"""Sequences: one launch of a composition leaves the bits of its ops run one by one, whatever the composition."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dsv41c.compiler.cuda_bodies import CudaBodies
from dsv41c.compiler.kernel_table import KernelTable
from dsv41c.compiler.ops.catalog import OPS, implementation
from dsv41c.compiler.ops.fused import fused_op
from dsv41c.compiler.ops.spec import OpSpec, PadRule
from dsv41c.compiler.scratch_slots import ScratchSlots
from dsv41c.compiler.stepwise import LaunchComparison, StepComparison
from dsv41c.compiler.tensor_shape import TensorShape
from dsv41c.runtime.load import load
from dsv41c.runtime.plan import schema as s
from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.runtime.plan.expr import evaluate
from dsv41c.runtime.plan.verify import verify
from tests.unit.compiler.one_method import (
    MAX_ROWS,
    VOCAB,
    Handle,
    Launching,
    OneMethod,
    moved_to_io,
    upload_rows,
    write_artifact,
)

WIDTH = 64
X, NORM = TensorShape(torch.float32, ("rows", WIDTH)), TensorShape(torch.float32, (WIDTH,))
Step = tuple[str, int, int]


def weights() -> dict[str, torch.Tensor]:
    draws = torch.Generator().manual_seed(3)
    shapes = {"embed": (VOCAB, WIDTH), "norm": (WIDTH,), "square": (WIDTH, WIDTH), "wide": (2 * WIDTH, WIDTH),
              "narrow": (WIDTH, 2 * WIDTH)}
    return {name: torch.randn(shape, generator=draws) for name, shape in shapes.items()}


NAMES = ("norm", "square", "wide", "narrow")


def apply(ops: Any, step: Step, pool: list[Any], norm: Any, square: Any, wide: Any,
          narrow: Any) -> Any:
    """One step on values [rows, WIDTH] float32; several make temporaries of other shapes and dtypes on the way."""
    kind, a, b = step
    x, y = pool[a % len(pool)], pool[b % len(pool)]
    if kind in ("quantize_fp8", "quantize_fp4_kv", "quantize_fp4_index"):
        return getattr(ops, kind)(x)
    if kind == "heads":
        return ops.quantize_fp8(x.view(-1, 2, WIDTH // 2)).view(-1, WIDTH)
    if kind == "rms_norm":
        return ops.rms_norm(x, norm, 1e-6)
    if kind == "linear":
        return ops.linear(x, square, None, torch.float32)
    if kind == "swiglu":
        gate, up = (ops.linear(v, wide, None, torch.float32) for v in (x, y))
        return ops.linear(ops.swiglu(gate, up, 10.0, torch.bfloat16), narrow, None, torch.float32)
    return ops.combine_experts(x, y, torch.float32)


KINDS = ("quantize_fp8", "quantize_fp4_kv", "quantize_fp4_index", "heads", "rms_norm", "linear", "swiglu",
         "combine_experts")


def composition_of(steps: tuple[Step, ...], kept: tuple[int, ...]) -> Callable[..., Any]:
    """`kept`: the steps whose values are the outputs."""
    def compose(ops: Any, x: Any, *weights: Any) -> Any:
        pool = [x]
        for step in steps:
            pool.append(apply(ops, step, pool, *weights))
        return tuple(pool[1 + index] for index in kept)

    return compose


def random_op(steps: tuple[Step, ...], kept: tuple[int, ...]) -> OpSpec:
    outputs = ", ".join(["Tensor"] * len(kept))
    inputs = ", ".join(f"Tensor {name}" for name in ("x", *NAMES))
    return fused_op(name="random", schema=f"({inputs}) -> ({outputs})", pads=PadRule.ROW, tie_order=None,
                    composition=composition_of(steps, kept))


@st.composite
def programs(draw: st.DrawFn) -> tuple[tuple[Step, ...], tuple[int, ...]]:
    count = draw(st.integers(1, 9))
    places = st.integers(0, count)
    steps = tuple((draw(st.sampled_from(KINDS)), draw(places), draw(places)) for _ in range(count))
    kept = draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=3, unique=True))
    return steps, tuple(kept)


def results(folder: Path, plan: s.Plan, name: str, count: int) -> list[bytes]:
    """Outputs at several numbers of rows: in buckets with and without pads, at the bound, and bound eagerly."""
    verify(plan)
    found = []
    with load(write_artifact(folder / name, plan, weights()), poison=0xC3) as runtime:
        for rows, eager in ((1, False), (3, False), (8, False), (MAX_ROWS, False), (1, True), (5, True)):
            everything = np.arange(rows, dtype=np.int32)
            runtime.step(upload_rows(rows), everything, everything, eager)
            found += [np.asarray(runtime.output(f"out{i}")).tobytes() for i in range(count)]
        by_provider = runtime.report()["methods"]["decode"]
    launches = plan.methods[0].steps[0].launches
    assert sum(by_provider["launches"].values()) == len(launches)
    return found


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(program=programs())
def test_one_launch_leaves_the_bits_of_its_ops_one_by_one(
    program: tuple[tuple[Step, ...], tuple[int, ...]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """On the executor and in torch, with everything poisoned that is not written."""
    steps, kept = program
    folder, spec = tmp_path_factory.mktemp("random"), random_op(steps, kept)
    single = OneMethod(OPS | {spec.name: spec}, weights())
    outputs = single.call("random", single.x, *map(single.weight, NAMES), outputs_in_io=True)
    together = results(folder, single.plan(outputs), "single", len(kept))
    many = OneMethod(OPS, weights())
    handles = composition_of(steps, kept)(Launching(many), many.x, *map(many.weight, NAMES))
    roots = [root_of(many, handle) for handle in handles]
    for root in roots:
        moved_to_io(many, root)
    assert together == results(folder, many.plan(roots), "many", len(kept))
    tokens = torch.from_numpy(upload_rows(MAX_ROWS)[:, 2].copy()).long()
    given_ = weights()
    eager = implementation(spec)(given_["embed"][tokens], *(given_[name] for name in NAMES))
    at_bound = together[3 * len(kept): 4 * len(kept)]
    assert at_bound == [tensor.contiguous().numpy().tobytes() for tensor in eager]


def root_of(method: OneMethod, handle: Handle) -> Handle:
    """The launch's own output: a port is no view."""
    storage = method.values[handle.index].storage
    return dataclasses.replace(handle, index=storage.of) if isinstance(storage, s.ViewStorage) else handle


# --- the body -------------------------------------------------------------------------------------------------


def built(composition: Callable[..., Any], schema: str = "(Tensor x, Tensor norm) -> Tensor",
          args: tuple[Any, ...] = (X, NORM)) -> tuple[KernelTable, s.SequenceBody, s.Kernel]:
    spec = fused_op(name="tried", schema=schema, pads=PadRule.ROW, tie_order=None, composition=composition)
    table = KernelTable(OPS | {"tried": spec})
    kernel = table.kernels[table.find("tried", args)]
    assert isinstance(kernel.body, s.SequenceBody)
    return table, kernel.body, kernel


def test_parts_come_before_the_sequence_and_are_shared_with_plain_launches() -> None:
    table, body, kernel = built(lambda ops, x, norm: ops.quantize_fp8(ops.rms_norm(ops.rms_norm(x, norm, 1.0), norm,
                                                                                  1.0)))
    assert [k.op for k in table.kernels] == ["dsv41c::rms_norm", "dsv41c::quantize_fp8", "dsv41c::tried"]
    assert [part.kernel for part in body.parts] == [0, 0, 1]
    assert table.find("rms_norm", [X, NORM, 1.0]) == 0
    assert kernel.attributes == {}


def test_scratch_is_reused_between_values_that_never_meet() -> None:
    """Twelve norms in a row need two temporaries and one scratch of a part."""
    def chain(ops: Any, x: Any, norm: Any) -> Any:
        for _ in range(12):
            x = ops.rms_norm(x, norm, 1e-6)
        return x

    table, _, kernel = built(chain)
    own = evaluate(table.kernels[0].scratch_bytes, {"rows": 8})
    tensor = 4 * WIDTH * 8
    assert evaluate(kernel.scratch_bytes, {"rows": 8}) <= 2 * tensor + 2 * max(own, tensor)


@given(st.lists(st.tuples(st.sampled_from([64, 100, "rows", s.Binary("*", 256, "rows")]), st.integers(0, 4)),
                min_size=1, max_size=12))
def test_slots_that_are_alive_together_are_apart_at_every_size(users: list[tuple[s.Expr, int]]) -> None:
    slots = ScratchSlots()
    taken = [(slots.take(size, first, first + length), size, first, first + length)
             for first, (size, length) in enumerate(users)]
    *starts, end = slots.offsets()
    for rows in (1, 2, 37):
        placed = [(evaluate(starts[n], {"rows": rows}), evaluate(size, {"rows": rows}), first, last)
                  for n, size, first, last in taken]
        assert all(begin % 64 == 0 and begin + size <= evaluate(end, {"rows": rows}) for begin, size, _, _ in placed)
        for i, (a, a_size, _, a_last) in enumerate(placed):
            for b, b_size, b_first, _ in placed[i + 1:]:
                assert b_first > a_last or a + a_size <= b or b + b_size <= a


def test_an_output_that_is_a_view_of_a_part_is_written_directly() -> None:
    _, body, kernel = built(lambda ops, x, norm: ops.quantize_fp8(x).view(-1, 2, 32))
    assert not [local for local in body.locals if isinstance(local, s.TempLocal)]
    (output,) = (local for local in body.locals if isinstance(local, s.ArgLocal) and local.index == 2)
    assert output.sizes == ("rows", 2, 32)


def test_written_arguments_keep_their_use() -> None:
    """The state that a part changes in place is inout of the part and of the launch."""
    ring, rows = TensorShape(torch.float32, (4, 8, WIDTH)), TensorShape(torch.int32, ("rows", 8))

    def store(ops: Any, x: Any, norm: Any, ring: Any, rows: Any) -> Any:
        normed = ops.rms_norm(x, norm, 1e-6)
        ops.window_commit(normed, rows, ring)
        return normed

    _, body, _ = built(store, "(Tensor x, Tensor norm, Tensor(a!) ring, Tensor rows) -> Tensor", (X, NORM, ring, rows))
    assert s.InOut(2) in body.parts[1].tensors
    with pytest.raises(Dsv41cError, match="composition that writes") as caught:
        built(store, "(Tensor x, Tensor norm, Tensor ring, Tensor rows) -> Tensor", (X, NORM, ring, rows))
    assert caught.value.code == "DSV41C-E0301"


@pytest.mark.parametrize("composition", [
    lambda ops, x, norm: x,
    lambda ops, x, norm: x.view(-1, 2, 32),
    lambda ops, x, norm: (y := ops.quantize_fp8(x), y.view(-1, 2, 32)),
    lambda ops, x, norm: (y := ops.quantize_fp8(x), y),
    lambda ops, x, norm: (ops.quantize_fp8(x), norm),
])
def test_outputs_without_a_tensor_of_their_own_are_refused(composition: Callable[..., Any]) -> None:
    with pytest.raises(Dsv41cError, match="an input, another output or a view of one") as caught:
        built(composition)
    assert caught.value.code == "DSV41C-E0201"


@pytest.mark.parametrize("composition", [
    lambda ops, x, norm: ops.rms_norm(x, norm, 1.0 / x.shape[0]),
    lambda ops, x, norm: ops.rms_norm(x, norm, 1.0) if x.shape[0] > 4 else ops.quantize_fp8(x),
    lambda ops, x, norm: ops.combine_experts(x, ops.quantize_fp8(x) if x.shape[0] > 1 else x, torch.float32),
])
def test_a_composition_that_depends_on_the_rows_is_refused(composition: Callable[..., Any]) -> None:
    with pytest.raises(Dsv41cError) as caught:
        built(composition)
    assert caught.value.code == "DSV41C-E0201" and "rows" in caught.value.found + caught.value.needed


@pytest.mark.parametrize(("composition", "named"), [
    (lambda ops, x, norm: ops.layer_norm(x, norm), "layer_norm"),
    (lambda ops, x, norm: ops.rms_norm_cast(x, norm, 1.0)[0], "rms_norm_cast"),
    (lambda ops, x, norm: ops.quantize_fp8(x + x), "aten::add"),
    (lambda ops, x, norm: ops.quantize_fp8(x.flatten(0)[None]), "aten::unsqueeze"),
])
def test_a_composition_of_more_than_primitives_is_refused(composition: Callable[..., Any], named: str) -> None:
    with pytest.raises(Dsv41cError) as caught:
        built(composition)
    assert caught.value.code == "DSV41C-E0301" and named in caught.value.found


def test_every_fused_op_names_what_its_reference_can_call() -> None:
    """The same refusal without a body: on tensors, by the reference and by what the CPU runs."""
    spec = fused_op(name="tried", schema="(Tensor x) -> Tensor", pads=PadRule.ROW, tie_order=None,
                    composition=lambda ops, x: ops.absent(x))
    for call in (spec.reference, spec.fake, implementation(spec)):
        with pytest.raises(Dsv41cError, match="absent in its composition") as caught:
            call(torch.zeros(2, 32))
        assert caught.value.code == "DSV41C-E0301"


@dataclasses.dataclass
class NoCompiler(CudaBodies):
    """Bodies without functions; `own` names the fused ops that have a kernel of their own."""

    own: frozenset[str] = frozenset()

    def _sources(self, spec: OpSpec, args: Any) -> Any:
        return ((), 0) if spec.composition is None or spec.name in self.own else None


def bodies(fallback: tuple[str, ...] = (), own: tuple[str, ...] = ()) -> dict[str, type]:
    table = KernelTable(OPS, NoCompiler("sm_90a", None, frozenset(fallback), own=frozenset(own)))
    table.find("rms_norm_cast", [X, NORM, 1.0])
    return {kernel.op.removeprefix("dsv41c::"): type(kernel.body) for kernel in table.kernels}


def test_on_a_cuda_target_parts_are_cuda_and_fallback_applies_to_them() -> None:
    parts = {"rms_norm": s.CudaBody, "quantize_fp8": s.CudaBody}
    assert bodies() == parts | {"rms_norm_cast": s.SequenceBody}
    assert bodies(fallback=("rms_norm",)) == parts | {"rms_norm": s.CompositeBody, "rms_norm_cast": s.SequenceBody}


def test_a_fused_kernel_takes_the_place_of_the_sequence() -> None:
    assert bodies(own=("rms_norm_cast",)) == {"rms_norm_cast": s.CudaBody}
    assert set(bodies(fallback=("rms_norm_cast",), own=("rms_norm_cast",))) == {"rms_norm", "quantize_fp8",
                                                                               "rms_norm_cast"}


def test_check_compares_a_sequence_with_the_reference_of_its_op(tmp_path: Path) -> None:
    """`check --reference` runs the launch by the op's reference and by the bodies of its parts."""
    method = OneMethod(OPS, weights())
    outputs = method.call("rms_norm_cast", method.x, method.weight("norm"), 1e-6, outputs_in_io=True)
    plan, rows = method.plan(outputs), np.arange(5, dtype=np.int32)
    comparison = LaunchComparison(plan, weights())
    with load(write_artifact(tmp_path / "art", plan, weights()), poison=0xC3) as runtime:
        StepComparison(runtime, comparison).step(upload_rows(5), rows, rows)
        assert runtime.report()["methods"]["decode"]["launches"] == {"cpu": 1, "aten": 1, "sequence": 1}
        assert runtime.report()["methods"]["decode"]["kernels"] == {"cpu": 1, "aten": 3}
    assert comparison.launches == 3


def test_a_launch_that_brings_another_shape_is_refused_at_load(tmp_path: Path) -> None:
    """A sequence states what it was traced with, as a composite does; both verifiers look at bytes only."""
    method = OneMethod(OPS, weights())
    plan = method.plan(method.call("rms_norm_cast", method.x, method.weight("norm"), 1e-6, outputs_in_io=True))
    kernels = list(plan.kernels)
    body = kernels[-1].body
    assert isinstance(body, s.SequenceBody)
    turned = s.ArgLocal(0, "float32", ("rows", 2, WIDTH // 2), (WIDTH, WIDTH // 2, 1))
    kernels[-1] = dataclasses.replace(kernels[-1], body=dataclasses.replace(body, locals=(turned, *body.locals[1:])))
    broken = dataclasses.replace(plan, kernels=tuple(kernels))
    verify(broken)
    with pytest.raises(Dsv41cError, match="kernel dsv41c::rms_norm_cast cannot be bound") as caught:
        load(write_artifact(tmp_path / "art", broken, weights()))
    assert caught.value.code == "DSV41C-E0703" and "launch rms_norm_cast_2" in str(caught.value.where)


def test_sizes_of_the_temporaries_are_exact(tmp_path: Path) -> None:
    """Verification of the smallest plan with it: nothing reaches past the scratch at any size."""
    spec = random_op((("swiglu", 0, 0), ("heads", 0, 0)), (1,))
    method = OneMethod(OPS | {"random": spec}, weights())
    outputs = method.call("random", method.x, *map(method.weight, NAMES), outputs_in_io=True)
    verify(method.plan(outputs))
    kernel = method.table.kernels[-1]
    assert math.gcd(evaluate(kernel.scratch_bytes, {"rows": 7}), 64) == 64
