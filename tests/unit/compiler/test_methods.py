"""Capture and cut: which methods come out, what crosses their boundaries, and what is refused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from dsv41c.compiler.bounds import method_bounds
from dsv41c.compiler.capture import Captured, capture
from dsv41c.compiler.checkpoint.view import CheckpointView
from dsv41c.compiler.methods import build_methods
from dsv41c.compiler.model.numerics import OPS
from dsv41c.compiler.model.state import make_state, state_specs
from dsv41c.compiler.model.transformer import Transformer
from dsv41c.compiler.options import CompileOptions
from dsv41c.compiler.pipeline import run_pipeline
from dsv41c.compiler.program import Origin, Program, memory_root, op_name, written_arguments
from dsv41c.compiler.weights import weight_recipes, weight_shapes
from dsv41c.passes.engine.effects import state_writes
from dsv41c.runtime.plan.errors import Dsv41cError


@pytest.fixture(scope="module")
def options(tiny_checkpoint: Path) -> CompileOptions:
    return CompileOptions().resolved(CheckpointView.open(tiny_checkpoint).config)


@pytest.fixture(scope="module")
def model(tiny_checkpoint: Path, options: CompileOptions) -> Transformer:
    view = CheckpointView.open(tiny_checkpoint)
    state = make_state(state_specs(view.config, options), "meta")
    return Transformer(view.config, options, weight_shapes(view, weight_recipes(view, options)), state)


@pytest.fixture(scope="module")
def captured(model: Transformer, options: CompileOptions) -> Captured:
    return capture(model, options.max_num_batched_tokens)


@pytest.fixture(scope="module")
def program(captured: Captured, options: CompileOptions) -> Program:
    return build_methods(captured, options)


def test_options_are_checked_against_the_bounds_of_the_methods(program: Program, options: CompileOptions) -> None:
    assert method_bounds(options) == {name: method.symbol.hi for name, method in program.methods.items()}


def calls(program: Program, method: str) -> list[str]:
    return [name for node in program.methods[method].graph.nodes if (name := op_name(node))]


def test_every_row_dimension_is_one_symbol_without_guards(captured: Captured) -> None:
    """No specialisation: all symbolic sizes of the capture are multiples of one symbol."""
    symbols = {s for node in captured.graph.nodes if isinstance(val := node.meta.get("val"), torch.Tensor)
               for size in val.shape if not isinstance(size, int) for s in size.node.expr.free_symbols}
    assert len(symbols) == 1


def test_the_pieces_together_make_the_whole(captured: Captured, program: Program) -> None:
    """Every call of the capture is in exactly one of encoder, decoder and head."""
    whole = sorted(name for node in captured.graph.nodes if (name := op_name(node)))
    assert sorted(calls(program, "encoder") + calls(program, "decoder") + calls(program, "head")) == whole


def test_decode_is_the_whole_without_boundaries(captured: Captured, program: Program) -> None:
    whole = [name for node in captured.graph.nodes if (name := op_name(node))]
    assert calls(program, "decode") == [n for n in whole if not n.startswith("take_")]


def test_boundaries_carry_rows_trunk_and_alpha_then_hidden_and_rows(program: Program) -> None:
    assert len(program.methods["encoder"].bridges_out) == 3
    assert len(program.methods["decoder"].bridges_out) == 2
    assert program.methods["head"].bridges_out == ()
    inputs = {name: [n.meta["name"] for n in m.graph.nodes if n.meta.get("origin") is Origin.INPUT]
              for name, m in program.methods.items()}
    assert inputs == {"decode": ["upload"], "encoder": ["upload"], "decoder": ["keep_rows"], "head": ["logit_rows"]}


def test_state_writes_survive_every_cut_and_pass(captured: Captured, program: Program) -> None:
    """Each state tensor is written as often as in the capture: by decode, and by the three pieces together."""
    whole: Counter[str] = Counter()
    for node in captured.graph.nodes:
        whole.update(n.meta["name"] for n in map(memory_root, written_arguments(node)))
    writes = state_writes(run_pipeline(program).program)
    for methods in (("decode",), ("encoder", "decoder", "head")):
        found: Counter[str] = Counter()
        for (method, state), times in writes.items():
            found[state] += times if method in methods else 0
        assert +found == whole


def test_the_pipeline_merges_the_norm_that_decode_computes_twice(program: Program) -> None:
    """Uncut, the decoder's first norm is evaluated before and after the boundary on the same rows."""
    before, after = program.methods["decode"].graph, run_pipeline(program).program.methods["decode"].graph
    assert len(after.nodes) < len(before.nodes)


def test_an_undeclared_op_is_refused_by_name(model: Transformer, options: CompileOptions) -> None:
    class WithFlip(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weights, self.state = model.weights, model.state  # not the model: its tensors would get two names

        def forward(self, upload: torch.Tensor, keep_rows: torch.Tensor,
                    logit_rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            logits, tokens = model(upload, keep_rows, logit_rows)
            return torch.flip(logits, [1]), tokens

    with pytest.raises(Dsv41cError, match="E0202") as caught:
        run_pipeline(build_methods(capture(WithFlip(), 16), options))
    assert "flip" in str(caught.value)


class _Crossing(torch.nn.Module):
    """Small programs over one state tensor and the two row lists, to cut wrongly on purpose."""

    def __init__(self, body: Any) -> None:
        super().__init__()
        self.state = torch.nn.Module()
        self.state.register_buffer("window_0", torch.zeros(3, 8, 16, device="meta"))
        self.state.register_buffer("table", torch.zeros(8, dtype=torch.int32, device="meta"))
        self._body = body

    def forward(self, upload: torch.Tensor, keep_rows: torch.Tensor, logit_rows: torch.Tensor) -> Any:
        rows = OPS.row_table(upload, self.state.table, self.state.table, self.state.table.view(4, 2),
                             self.state.table, 4)
        x = OPS.embed_expand(rows, self.state.window_0.view(24, 16), 4, torch.float32)[1]
        return self._body(self.state.window_0, rows, x, keep_rows, logit_rows)


def _late_write(ring: Any, rows: Any, x: Any, keep: Any, logit: Any) -> Any:
    read = OPS.take_rows(ring, keep, "suffix")
    OPS.window_commit(x, rows, ring.view(3, 32, 4))  # stands behind the read, would run before it
    return OPS.take_rows(read, logit, "logits"), OPS.take_rows(OPS.take_rows(x, keep, "suffix"), logit, "logits")


def _skipped_boundary(ring: Any, rows: Any, x: Any, keep: Any, logit: Any) -> Any:
    return OPS.take_rows(x, logit, "logits"), OPS.take_rows(x, keep, "suffix")


def _read_across(ring: Any, rows: Any, x: Any, keep: Any, logit: Any) -> Any:
    y = OPS.take_rows(x, keep, "suffix")
    return OPS.take_rows(OPS.combine_experts(y, x, torch.float32), logit, "logits"), y


@pytest.mark.parametrize("body", [_skipped_boundary, _read_across, _late_write])
def test_a_program_that_cannot_be_cut_is_refused(body: Any, options: CompileOptions) -> None:
    """A value that jumps a stage, one that is read across a boundary, a state write that would move before a read."""
    with pytest.raises(Dsv41cError, match="E0203"):
        build_methods(capture(_Crossing(body), 16), options)  # type: ignore[arg-type]


@pytest.mark.parametrize("rows", [1, 2, 8, 12, 13])
def test_small_batches_can_be_captured(model: Transformer, rows: int) -> None:
    assert capture(model, rows).graph is not None
