"""What goes wrong in a pass is caught by the driver, and the error says which pass it was and what ran before it."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import fx

from dsv41c.compiler.pass_driver import run_passes
from dsv41c.compiler.pipeline import PIPELINE, run_pipeline
from dsv41c.compiler.program import Program, op_name
from dsv41c.passes.base import GraphResult, Pass, PassResult, Stage, per_method
from dsv41c.passes.canonicalize.merge_equal_calls import MergeEqualCalls
from dsv41c.runtime.plan.errors import Dsv41cError
from tests.passes.programs import OPS, Small, angles, fp8, normal, row_table, small

Damage = Callable[[fx.Graph], object]


@dataclass(frozen=True)
class Broken(Pass):
    """Changes a copy of the graph into something that no pass may give."""

    damage: Damage

    name = "broken"
    stage = Stage.CANONICALIZE

    def apply(self, program: Program) -> PassResult:
        def rewrite(method: str, graph: fx.Graph) -> GraphResult:
            copy, copies = fx.Graph(), dict[fx.Node, fx.Node]()
            for node in graph.nodes:
                copies[node] = copy.node_copy(node, copies.__getitem__)
                copies[node].meta = dict(node.meta)
            self.damage(copy)
            return GraphResult(copy, 1)
        return per_method(program, rewrite)


def program() -> Small:
    """A norm and a cast that are read, a commit that nothing reads, and a call with two results."""
    def body(**v: torch.Tensor) -> list[torch.Tensor]:
        normed = OPS.rms_norm(v["x"], v["weight"], 1e-6)
        OPS.window_commit(v["x"], v["rows"], v["window"])
        return [OPS.quantize_fp8(normed), normed.view(-1), *OPS.linear_pair(normed, v["a"], v["b"], v["a"], v["b"],
                                                                            torch.float32)]
    weight, scale = fp8(1, 32, 64)
    return small(body, {"x": normal(1, 5, 64), "weight": normal(2, 64), "rows": row_table(),
                        "window": normal(3, 3, 12, 64), "a": weight, "b": scale}, ("window",))


def call(graph: fx.Graph, op: str) -> fx.Node:
    return next(n for n in graph.nodes if op_name(n) == op)


def said_to_be_wider(graph: fx.Graph) -> None:
    node = call(graph, "quantize_fp8")
    node.meta["val"] = torch.cat([node.meta["val"]] * 2, -1)


def said_to_be_another_dtype(graph: fx.Graph) -> None:
    node = call(graph, "rms_norm")
    with graph.inserting_before(node):
        copy = graph.create_node("call_function", node.target, node.args, name="other_norm")
    copy.meta["val"] = node.meta["val"].to(torch.bfloat16)
    call(graph, "quantize_fp8").args = (copy,)


def drop_the_commit(graph: fx.Graph) -> None:
    graph.erase_node(call(graph, "window_commit"))


def double_the_commit(graph: fx.Graph) -> None:
    node = call(graph, "window_commit")
    with graph.inserting_after(node):
        graph.create_node("call_function", node.target, node.args).meta["val"] = None


def commit_elsewhere(graph: fx.Graph) -> None:
    """Into what is not state: the write of the window is gone."""
    node = call(graph, "window_commit")
    node.args = (node.args[0], node.args[1], next(n for n in graph.nodes if n.meta.get("name") == "x"))


def give_less(graph: fx.Graph) -> None:
    graph.output_node().args = (graph.output_node().args[0][:-1],)


def give_another(graph: fx.Graph) -> None:
    first, _, *rest = graph.output_node().args[0]
    graph.output_node().args = ((first, first, *rest),)


def call_outside_of_the_ops(graph: fx.Graph) -> None:
    node = call(graph, "quantize_fp8")
    node.target = torch.ops.aten.relu.default


def call_python(graph: fx.Graph) -> None:
    call(graph, "quantize_fp8").target = operator.neg


def read_what_comes_later(graph: fx.Graph) -> None:
    node = call(graph, "rms_norm")
    node.append(next(n for n in graph.nodes if n.meta.get("name") == "weight"))


def read_another_graph(graph: fx.Graph) -> None:
    other = fx.Graph()
    call(graph, "quantize_fp8").args = (other.placeholder("x"),)


def lose_the_value(graph: fx.Graph) -> None:
    del call(graph, "quantize_fp8").meta["val"]


def an_argument_of_another_kind(graph: fx.Graph) -> None:
    node = call(graph, "rms_norm")
    with graph.inserting_before(node):
        copy = graph.create_node("call_function", node.target, (node.args[0], "weight", 1e-6), name="other_norm")
    copy.meta["val"] = node.meta["val"]
    call(graph, "quantize_fp8").args = (copy,)


def an_attribute_node(graph: fx.Graph) -> None:
    node = call(graph, "quantize_fp8")
    with graph.inserting_before(node):
        graph.create_node("call_method", "clone", (node.args[0],)).meta["val"] = node.args[0].meta["val"]


def fail(graph: fx.Graph) -> None:
    raise ZeroDivisionError("on purpose")


CASES: list[tuple[Damage, str]] = [
    (said_to_be_wider, "gives"),
    (said_to_be_another_dtype, "%other_norm is said to be"),
    (drop_the_commit, "writes window 0 times instead of 1"),
    (double_the_commit, "writes window 2 times instead of 1"),
    (commit_elsewhere, "writes window 0 times instead of 1"),
    (give_less, "gives"),
    (give_another, "gives"),
    (call_outside_of_the_ops, "calls aten.relu.default, which is not declared"),
    (call_python, "which is not declared"),
    (read_what_comes_later, "the graph is broken"),
    (read_another_graph, "the graph is broken"),
    (lose_the_value, "%quantize_fp8 has no value"),
    (an_argument_of_another_kind, "%other_norm cannot be called so"),
    (an_attribute_node, "is a call_method"),
    (fail, "ZeroDivisionError: on purpose"),
]


@pytest.mark.parametrize(("damage", "found"), CASES, ids=lambda x: getattr(x, "__name__", ""))
def test_a_broken_result_is_told_with_the_pass_and_its_predecessor(damage: Damage, found: str) -> None:
    with pytest.raises(Dsv41cError) as caught:
        run_passes(program().program, (MergeEqualCalls(), Broken(damage)))
    error = caught.value
    assert error.code == "DSV41C-E0305"
    assert found in error.found, error.found
    assert "broken" in str(error) and "merge_equal_calls" in str(error)


def test_the_same_pass_without_damage_is_accepted() -> None:
    piped = run_passes(program().program, (MergeEqualCalls(), Broken(lambda graph: None)))
    assert [r.num_matches for r in piped.records] == [0, 1]


def test_a_method_that_is_gone_is_told() -> None:
    @dataclass(frozen=True)
    class Forgetful(MergeEqualCalls):
        """Loses every method."""

        name = "forgetful"

        def apply(self, program: Program) -> PassResult:
            return PassResult(dataclasses.replace(program, methods={}), 0)

    with pytest.raises(Dsv41cError, match=r"methods \[\] instead of \['decode'\]") as caught:
        run_passes(program().program, (MergeEqualCalls(), Forgetful()))
    assert "forgetful" in str(caught.value)


@pytest.mark.parametrize("hook", ["check", "verify"])
def test_what_a_pass_says_of_itself_is_told_too(hook: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise ValueError(f"{hook} says no")
    monkeypatch.setattr(Broken, hook, refuse)
    with pytest.raises(Dsv41cError, match=f"{hook} says no") as caught:
        run_passes(program().program, (MergeEqualCalls(), Broken(lambda graph: None)))
    assert caught.value.code == "DSV41C-E0305"


def test_a_captured_program_that_is_broken_blames_no_pass() -> None:
    given = program()
    lose_the_value(given.graph)
    with pytest.raises(Dsv41cError) as caught:
        run_passes(given.program, PIPELINE)
    assert "the captured program" in str(caught.value) and "no other pass" in str(caught.value)


# --- effects ----------------------------------------------


def writers() -> Small:
    """Every call only writes, and nothing reads a result of it."""
    def body(**v: torch.Tensor) -> list[torch.Tensor]:
        turned = OPS.rotary(v["x"], v["rows"], v["table"], 1, False)
        OPS.window_commit(turned, v["rows"], v["window"])
        OPS.window_commit(turned, v["rows"], v["window"])  # equal, and not the same: it writes
        OPS.entry_store(turned, v["rows"], v["page_table"], v["pool"], 1)
        OPS.greedy_token(v["logits"], v["rows"], v["slot_token"])
        return [v["x"].view(-1)]
    return small(body, {"x": normal(1, 5, 32), "rows": row_table(), "table": angles(3, 8),
                        "window": normal(2, 3, 12, 32), "pool": normal(4, 7, 4, 32),
                        "page_table": torch.tensor([[0, 1], [2, 3], [6, 6]], dtype=torch.int32),
                        "logits": normal(5, 5, 9), "slot_token": torch.zeros(3, dtype=torch.int32)},
                 ("window", "pool", "page_table", "slot_token"))


def test_calls_that_only_write_survive_the_whole_pipeline() -> None:
    given = writers()
    after = run_pipeline(given.program).program.methods["decode"].graph
    kept = [name for n in after.nodes if (name := op_name(n)) is not None]
    assert kept == given.ops() == ["rotary", "window_commit", "window_commit", "entry_store", "greedy_token"]


# --- names ------------------------------------------------


@pytest.mark.parametrize("step", PIPELINE, ids=lambda s: s.name)
def test_a_name_with_a_slip_is_answered_with_the_nearest(step: Pass) -> None:
    wrong = step.name[:-1] + "q"
    with pytest.raises(Dsv41cError, match=f"did you mean {step.name}\\?") as caught:
        run_pipeline(Program({}), (wrong,))
    assert (caught.value.code, caught.value.found) == ("DSV41C-E0901", repr(wrong))
