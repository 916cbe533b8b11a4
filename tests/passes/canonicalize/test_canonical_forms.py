"""normalize_arguments, drop_no_op_views, drop_dead_calls: what they change and leave; once is enough."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from dsv41c.compiler.pass_driver import run_passes
from dsv41c.compiler.program import Program
from dsv41c.passes.base import Pass
from dsv41c.passes.canonicalize.drop_dead_calls import DropDeadCalls
from dsv41c.passes.canonicalize.drop_no_op_views import DropNoOpViews
from dsv41c.passes.canonicalize.normalize_arguments import NormalizeArguments
from tests.passes.graphs import evaluate, graph_of, program_of, targets

OPS = torch.ops.dsv41c
X, W = torch.randn(6, 64), torch.randn(64)
KV, TABLE, RING = torch.randn(2, 32), torch.tensor([[0, 0, 0, 0, 2, 5, 0, 0], [0, 1, 0, 0, 2, 6, 0, 0]],
                                                   dtype=torch.int32), torch.zeros(3, 8, 32)
ALL = (NormalizeArguments(), DropNoOpViews(), DropDeadCalls())


def once(step: Pass, program: Program) -> tuple[Program, int]:
    """The result of the driver with its checks; a second application must find nothing."""
    first = run_passes(program, [step])
    assert run_passes(first.program, [step]).records[0].num_matches == 0
    return first.program, first.records[0].num_matches


def edited(program: Program, change: Callable[[torch.fx.Node], None]) -> Program:
    for node in graph_of(program).nodes:
        if node.op == "call_function":
            change(node)
    return program


def test_keywords_and_number_kinds_become_the_schema_s_positional_form() -> None:
    def spell(node: torch.fx.Node) -> None:
        x, w, _ = node.args
        node.args, node.kwargs = (x,), {"eps": 1, "weight": w}

    program = edited(program_of(lambda x, w: OPS.rms_norm(x, w, 1.0), X, W), spell)
    expected = OPS.rms_norm(X, W, 1.0)
    after, matches = once(NormalizeArguments(), program)
    (call,) = (n for n in graph_of(after).nodes if n.op == "call_function")
    assert matches == 1 and not call.kwargs and call.args[2] == 1.0 and type(call.args[2]) is float
    assert torch.equal(evaluate(after, X, W)[0], expected)


def test_a_missing_optional_argument_is_written_out_and_a_flag_stays_a_flag() -> None:
    weight = torch.randn(8, 64)
    program = program_of(lambda x, w: OPS.linear(x, w, None, torch.float32), X, weight)

    def spell(node: torch.fx.Node) -> None:
        node.args, node.kwargs = node.args[:2], {"dtype": torch.float32, "scale": None}

    after, matches = once(NormalizeArguments(), edited(program, spell))
    (call,) = (n for n in graph_of(after).nodes if n.op == "call_function")
    assert matches == 1 and call.args[2:] == (None, torch.float32)


def test_positional_calls_are_left_as_they_are() -> None:
    program = program_of(lambda x, w: OPS.rms_norm(x, w, 1e-6).view(-1, 8, 8), X, W)
    assert NormalizeArguments().apply(program).program is program


def test_views_of_views_become_one_and_a_view_to_the_same_shape_goes() -> None:
    program = program_of(lambda x, w: OPS.rms_norm(x.view(-1, 8, 8).view(-1, 64), w, 1e-6).view(6, 64), X, W)
    after, _ = once(DropNoOpViews(), program)
    assert targets(after) == ["rms_norm"]
    assert torch.equal(evaluate(after, X, W)[0], OPS.rms_norm(X, W, 1e-6))


def test_a_view_that_others_read_stays_and_another_shape_is_no_no_op() -> None:
    def body(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        inner = x.view(-1, 8, 8)
        return inner, inner.view(-1, 4, 16)

    after, matches = once(DropNoOpViews(), program_of(body, X))
    assert matches == 1 and targets(after) == ["aten.view", "aten.view"]
    assert [t.shape for t in evaluate(after, X)] == [(6, 8, 8), (6, 4, 16)]


def test_a_write_through_a_dropped_view_reaches_the_same_memory() -> None:
    def body(kv: torch.Tensor, rows: torch.Tensor, ring: torch.Tensor) -> torch.Tensor:
        OPS.window_commit(kv, rows, ring.view(3, 8, 32))
        return kv.view(-1, 4, 8)

    after, matches = once(DropNoOpViews(), program_of(body, KV, TABLE, RING, state=2))
    ring = RING.clone()
    evaluate(after, KV, TABLE, ring)
    assert matches == 1 and torch.equal(ring[0, :2], KV)


def test_dead_calls_go_with_what_only_they_read_and_writes_stay() -> None:
    def body(kv: torch.Tensor, rows: torch.Tensor, ring: torch.Tensor) -> torch.Tensor:
        OPS.window_commit(kv, rows, ring)
        return OPS.quantize_fp8(kv)

    program = program_of(body, KV, TABLE, RING, state=2)
    graph = graph_of(program)
    output = graph.output_node()
    with graph.inserting_before(output):
        dead = output.args[0][0]
        for _ in range(2):
            value = dead.meta["val"]
            dead = graph.call_function(OPS.quantize_fp8.default, (dead,))
            dead.meta["val"] = value
    after, matches = once(DropDeadCalls(), program)
    assert matches == 2 and targets(after) == ["window_commit", "quantize_fp8"]


def test_an_unread_result_of_a_writing_call_keeps_the_call() -> None:
    logits, slot_token = torch.randn(2, 9), torch.zeros(3, dtype=torch.int32)

    def body(logits: torch.Tensor, rows: torch.Tensor, token: torch.Tensor) -> torch.Tensor:
        OPS.greedy_token(logits, rows, token)
        return logits.view(-1, 3, 3)

    program = program_of(body, logits, TABLE, slot_token, state=2)
    assert DropDeadCalls().apply(program).program is program
    assert "greedy_token" in targets(program)


@pytest.mark.parametrize("step", ALL, ids=lambda p: p.name)
def test_the_program_that_was_given_is_left_as_it_was(step: Pass) -> None:
    program = program_of(lambda x, w: OPS.rms_norm(x.view(6, 64), w, 1e-6), X, W)
    before = str(graph_of(program))
    step.apply(program)
    assert str(graph_of(program)) == before
