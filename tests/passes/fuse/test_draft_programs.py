"""Fusion passes on the whole tiny model with its draft: how often each matches, and that no bit changes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import Tensor

from dsv41c.compiler.config import ModelConfig
from dsv41c.compiler.eager import EagerModel, request_rows
from dsv41c.compiler.options import CompileOptions
from dsv41c.compiler.pass_driver import run_passes
from dsv41c.compiler.program import Program, op_name
from dsv41c.passes.base import Pass
from dsv41c.passes.fuse.compress_store import CompressStore
from dsv41c.passes.fuse.engram_gather import EngramGather
from dsv41c.passes.fuse.feature_commit import FeatureCommit
from dsv41c.passes.fuse.head_sample import HeadSample
from dsv41c.passes.fuse.index_query import IndexQuery
from dsv41c.passes.fuse.markov_step import MarkovStep
from dsv41c.passes.fuse.project_features import ProjectFeatures
from dsv41c.passes.fuse.tap_feature import TapFeature
from tests.passes.fuse.draft_programs import DraftProgram, Runner
from tests.unit.compiler.ops.row_laws import assert_same_bits

PASSES: tuple[Pass, ...] = (CompressStore(), IndexQuery(), EngramGather(), HeadSample(), TapFeature(),
                            ProjectFeatures(), FeatureCommit(), MarkovStep())
METHODS = ("encoder", "decoder", "head", "decode", "draft")


@pytest.fixture(scope="module", params=[("float32", "off"), ("float32", "fake"), ("bfloat16", "fake")], ids="-".join)
def source(request: pytest.FixtureRequest, tiny_checkpoint: Path) -> DraftProgram:
    dtype, quantizers = request.param
    return DraftProgram(tiny_checkpoint, dtype=dtype, quantizers=quantizers, max_model_len=64, block_size=4,
                        max_num_seqs=3)


def expected(config: ModelConfig, cast: bool) -> dict[str, Counter[str]]:
    """Fused calls of each method, from config.json alone."""
    counts: dict[str, Counter[str]] = {m: Counter() for m in METHODS}

    def add(op: str, layers: list[int], boundary: int | None = None) -> None:
        """A layer's call is in the encoder before the boundary; what the boundary layer compresses is too."""
        last = config.decoder_start if boundary is None else boundary
        counts["encoder"][op] += sum(layer < last for layer in layers)
        counts["decoder"][op] += sum(layer >= last for layer in layers)
        counts["decode"][op] += len(layers)

    sources, compressed = list(config.kv_source_layer_ids), config.decoder_start + 1
    add("compress_store", [s for s in sources if config.compress_ratios[s] == 1], compressed)
    add("compress_pairs_store", [s for s in sources if config.compress_ratios[s] == 2], compressed)
    add("index_key_store", sources, compressed)
    add("index_query", list(config.index_source_layer_ids))
    add("engram_gather", list(config.engram_layer_ids) if cast else [])
    add("tap_feature", list(config.dspark_target_layer_ids) if cast else [])
    counts["head"]["head_sample"] = counts["decode"]["head_sample"] = 1
    for method in ("decoder", "decode"):
        counts[method]["project_features"] = 1
        counts[method]["feature_commit"] = config.num_nextn_predict_layers
    counts["draft"]["markov_step"] = config.dspark_block_size
    return {m: +c for m, c in counts.items()}


def fused_calls(program: Program) -> dict[str, Counter[str]]:
    names = {op for step in PASSES for op in step.ops}  # type: ignore[attr-defined]
    return {m: Counter(n for node in method.graph.nodes if (n := op_name(node)) in names)
            for m, method in program.methods.items()}


def test_matches_follow_from_the_config(source: DraftProgram) -> None:
    program = run_passes(source.program, PASSES).program
    got = fused_calls(program)
    assert {m: got[m] for m in METHODS} == expected(source.config, source.options.quantizers == "fake")
    again = run_passes(program, PASSES)
    assert [r.num_matches for r in again.records] == [0] * len(PASSES)


def test_the_order_of_the_passes_does_not_matter(source: DraftProgram) -> None:
    """All of them say that they commute."""
    assert all(step.commutes for step in PASSES)
    forward, backward = (run_passes(source.program, order).program for order in (PASSES, PASSES[::-1]))
    for method in METHODS:
        assert _calls(forward, method) == _calls(backward, method)


def _calls(program: Program, method: str) -> list[tuple[str, str]]:
    """Every node with its arguments by place: a member of a tuple is named by when it was made."""
    place = {node: f"%{i}" for i, node in enumerate(program.methods[method].graph.nodes)}
    return [(str(n.target), str(torch.fx.node.map_arg((n.args, n.kwargs), place.__getitem__))) for n in place]


@pytest.fixture(scope="module")
def unfused(source: DraftProgram) -> list[dict[str, Tensor]]:
    return _session(Runner(source, source.program), source.options)


@pytest.mark.parametrize("passes", [(p,) for p in PASSES] + [PASSES], ids=lambda ps: "+".join(p.name for p in ps))
def test_no_bit_changes(source: DraftProgram, unfused: list[dict[str, Tensor]], passes: tuple[Pass, ...]) -> None:
    """Prompts of two slots cut at odd positions, replay of a part, decode steps, drafts of both slots."""
    fused = _session(Runner(source, run_passes(source.program, passes).program), source.options)
    for step, (got, want) in enumerate(zip(fused, unfused, strict=True)):
        assert got.keys() == want.keys()
        for name in want:
            assert_same_bits(got[name], want[name], f"{name} of step {step}")


def _session(runner: Runner, options: CompileOptions) -> list[dict[str, Tensor]]:
    """Results of every step, each with a copy of all state."""
    def rows(slot: int, tokens: list[int], position: int) -> Tensor:
        return torch.from_numpy(request_rows(slot, tokens, position, options))

    def numbers(*values: int) -> Tensor:
        return torch.tensor(values, dtype=torch.int32)

    first = torch.cat([rows(0, [5, 9, 33, 2, 71], 0), rows(1, [8, 8, 1], 0)])
    second = torch.cat([rows(1, [44, 3, 90, 17], 3), rows(0, [12, 60], 5)])
    drafts = numbers(1, 0, 7, 0, -1, 0, 0, -1, 0, -1).view(2, 5)
    calls = [lambda: runner.prefill(first, numbers(*range(8)), numbers(4, 7)),
             lambda: runner.prefill(second, numbers(2, 3, 4, 5), numbers(1, 3)),
             lambda: runner.run("decode", upload=torch.cat([rows(0, [-1], 7), rows(1, [-1], 7)])),
             lambda: runner.run("draft", upload=drafts),
             lambda: runner.run("decode", upload=torch.cat([rows(1, [21], 8), rows(0, [-1], 8)])),
             lambda: runner.run("draft", upload=drafts)]
    return [call() | {name: t.clone() for name, t in runner.state.items()} for call in calls]


def test_the_captured_draft_is_the_eager_one(source: DraftProgram) -> None:
    """Tokens, confidence and draft windows of the program equal those of the eager model."""
    eager = EagerModel(source.config, source.options, source.weights)
    runner = Runner(source, source.program)
    upload = request_rows(1, [5, 9, 33, 2, 71], 0, source.options)
    everything = torch.arange(5, dtype=torch.int32)
    eager.step(upload)
    runner.prefill(torch.from_numpy(upload), everything, everything)
    for name, tensor in eager.state.items():
        assert_same_bits(runner.state[name], tensor, name)
    want = eager.draft([1], [42])
    got = runner.run("draft", upload=torch.tensor([[1, 0, 42, 0, -1]], dtype=torch.int32))
    assert_same_bits(got["draft_tokens"], want.tokens, "tokens")
    assert_same_bits(got["confidence"], want.confidence, "confidence")


def test_every_size_of_the_draft_is_a_multiple_of_one_symbol(source: DraftProgram) -> None:
    sizes = [s for node in source.program.methods["draft"].graph.nodes
             if isinstance(val := node.meta.get("val"), torch.Tensor) for s in val.shape if not isinstance(s, int)]
    block = source.config.dspark_block_size
    (symbol,) = {symbol for s in sizes for symbol in s.node.expr.free_symbols}
    assert {s.node.expr for s in sizes} == {symbol, block * symbol}
