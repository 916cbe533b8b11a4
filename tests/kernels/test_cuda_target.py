"""A plan for a GPU compiles where there is none: every launch has a CUDA body, and its cubin is in the artifact."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from dsv41c.compiler.checkpoint.make import make_checkpoint
from dsv41c.compiler.checkpoint.view import CheckpointView
from dsv41c.compiler.driver import compile_checkpoint, fuse
from dsv41c.compiler.options import CompileOptions
from dsv41c.compiler.planning import Planner
from dsv41c.runtime.manifest import Manifest
from dsv41c.runtime.plan import codec, expr, schema
from dsv41c.runtime.plan.memory_classes import memory_by_class
from dsv41c.tools.cli.main import run
from tests.unit.runtime.plan.native_plan import verify

SMALL = {"max_model_len": 64, "max_num_seqs": 4, "max_num_batched_tokens": 16}
ELF = b"\x7fELF"


def compiled(checkpoint: Path, output: Path, **options: object) -> schema.Plan:
    compile_checkpoint(checkpoint, output, CompileOptions(plan_only=True, **SMALL, **options), lambda _: None)
    return codec.decode((output / "plan.json").read_bytes())


@pytest.fixture(scope="module")
def sm_90a(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """tiny for sm_90a, its kernels compiled anew."""
    folder = tmp_path_factory.mktemp("sm_90a")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DSV41C_CACHE_DIR", str(folder / "cache"))
        compiled(tiny_checkpoint, folder / "art", target="sm_90a")
    return folder / "art"


@pytest.mark.nvcc
def test_the_structure_does_not_depend_on_the_target(tiny_checkpoint: Path, sm_90a: Path, tmp_path: Path,
                                                     capsys: pytest.CaptureFixture[str]) -> None:
    """Launches, segments, breaks and classes of memory of the cpu plan and of the one for a GPU are equal."""
    compiled(tiny_checkpoint, tmp_path / "cpu")
    assert run(["diff", str(tmp_path / "cpu"), str(sm_90a)]) == 1
    capsys.readouterr()
    assert (run(["diff", str(tmp_path / "cpu"), str(sm_90a), "--structure"]), capsys.readouterr().out) == (0, "same\n")


@pytest.mark.nvcc
def test_tiny_for_sm_90a_needs_nothing_but_its_cubins(sm_90a: Path) -> None:
    plan = codec.decode((sm_90a / "plan.json").read_bytes())
    assert (plan.target, plan.required_features) == ("sm_90a", ("cuda_cubin", "kernel_sequences"))
    nodes = [node for k in plan.kernels if isinstance(k.body, schema.CudaBody) for node in k.body.launches]
    named = {node.cubin for node in nodes if isinstance(node, schema.CudaLaunch)}
    assert {type(node) for node in nodes} == {schema.CudaLaunch, schema.CudaCopy, schema.CudaMemset}
    files = {p.stem: p.read_bytes() for p in (sm_90a / "kernels").iterdir()}
    assert named == set(files)
    for digest, content in files.items():
        assert content.startswith(ELF) and hashlib.sha256(content).hexdigest() == digest


@pytest.mark.nvcc
def test_an_op_left_to_aten_keeps_its_composite(tiny_checkpoint: Path, tmp_path: Path,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    """The cubins of both architectures differ; the launches of the plan do not."""
    monkeypatch.setenv("DSV41C_CACHE_DIR", str(tmp_path / "cache"))
    ops = ("rms_norm", "rotary")
    plan = compiled(tiny_checkpoint, tmp_path / "art", target="sm_100a", fallback=ops)
    assert plan.required_features == ("aten_composites", "cuda_cubin", "kernel_sequences")
    left = {k.op.removeprefix("dsv41c::") for k in plan.kernels if isinstance(k.body, schema.CompositeBody)}
    assert left == set(ops)


@pytest.mark.nvcc
def test_memory_is_planned_without_kernels(tiny_checkpoint: Path, sm_90a: Path) -> None:
    """What `dsv41c plan` counts, graphs too, is that of the compiled plan."""
    plan = Manifest.read(sm_90a).read_plan()
    options = CompileOptions.from_json(plan.provenance.options)
    fused = fuse(CheckpointView.open(tiny_checkpoint), options, lambda _: None)
    planned = Planner(fused).plan(options.max_model_len or 0, options.max_num_batched_tokens)
    assert memory_by_class(planned) == memory_by_class(plan)
    assert memory_by_class(plan)["graphs"] > 0
    assert [m.arena_bytes for m in planned.methods] == [m.arena_bytes for m in plan.methods]


@pytest.mark.nvcc
def test_a_packed_cache_of_real_heads_has_the_attention_kernel(tmp_path: Path,
                                                               monkeypatch: pytest.MonkeyPatch) -> None:
    """`small` has heads of 512: every attention launch is mega_attention with its finish, and none a sequence."""
    monkeypatch.setenv("DSV41C_CACHE_DIR", str(tmp_path / "cache"))
    checkpoint = make_checkpoint("small", tmp_path / "ckpt", headers_only=True).path
    plan = compiled(checkpoint, tmp_path / "art", target="sm_90a", kv_cache_dtype="packed", block_size=64)
    bodies = [k.body for k in plan.kernels if "mega_" in k.op and k.op.endswith("_attention")]
    assert bodies
    for body in bodies:
        assert isinstance(body, schema.CudaBody)
        assert [node.symbol for node in body.launches] == ["mega_attention", "mega_attention_finish"]
    split = compiled(checkpoint, tmp_path / "split", target="sm_90a", kv_cache_dtype="packed", block_size=64,
                     batch_invariant="off")
    grids = {expr.evaluate(node.grid[1], {"rows": 4}) for p in (plan, split) for k in p.kernels
             if k.op == "dsv41c::mega_sparse_attention" for node in k.body.launches[:1]}
    assert grids == {1, 4}
    for folder in ("art", "split"):
        verify((tmp_path / folder / "plan.json").read_bytes())
    held = {s.name.rstrip("0123456789"): (s.dtype, s.sizes[-1]) for s in plan.state}
    assert (held["window_"], held["compressed_"], held["index_key_"]) == (
        ("uint8", 528), ("uint8", 288), ("uint8", 68))
