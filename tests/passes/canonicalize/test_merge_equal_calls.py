"""merge_equal_calls: merges pure calls with equal arguments, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import fx

from dsv41c.compiler.ops import catalog  # noqa: F401  registers the ops
from dsv41c.passes.base import GraphResult
from dsv41c.passes.canonicalize.merge_equal_calls import MergeEqualCalls

OPS = torch.ops.dsv41c


def build(body: Callable[[fx.Graph, fx.Node, fx.Node], object]) -> fx.Graph:
    graph = fx.Graph()
    graph.output(body(graph, graph.placeholder("x"), graph.placeholder("w")))
    return graph


def norm(graph: fx.Graph, x: fx.Node, w: fx.Node, eps: float = 1e-6) -> fx.Node:
    return graph.call_function(OPS.rms_norm.default, (x, w, eps))


def rewrite(graph: fx.Graph) -> GraphResult:
    return MergeEqualCalls()._rewrite("decode", graph)


def run(graph: fx.Graph, *args: torch.Tensor) -> object:
    return fx.GraphModule(torch.nn.Module(), graph)(*args)


def test_equal_calls_become_one_and_the_results_stay() -> None:
    """Both users read the first call; a second application finds nothing more."""
    graph = build(lambda g, x, w: (norm(g, x, w), norm(g, norm(g, x, w), w)))
    result = rewrite(graph)
    assert result.num_matches == 1
    assert rewrite(result.graph).num_matches == 0
    x, w = torch.randn(3, 32), torch.randn(32)
    for before, after in zip(run(graph, x, w), run(result.graph, x, w), strict=True):  # type: ignore[call-overload]
        assert torch.equal(before, after)


def test_another_attribute_or_argument_is_another_call() -> None:
    graph = build(lambda g, x, w: (norm(g, x, w), norm(g, x, w, 1e-5), norm(g, w, w)))
    assert rewrite(graph).num_matches == 0


def test_a_call_that_writes_state_is_never_merged() -> None:
    def body(g: fx.Graph, x: fx.Node, ring: fx.Node) -> object:
        rows = g.placeholder("rows")
        for _ in range(2):
            g.call_function(OPS.window_commit.default, (x, rows, ring))
        return ring

    result = rewrite(build(body))
    assert result.num_matches == 0
    assert sum(n.op == "call_function" for n in result.graph.nodes) == 2


def test_a_read_of_state_is_not_merged_across_a_write_to_it() -> None:
    """rows = take_rows(ring); write(ring); take_rows(ring) again must read the new content."""
    def body(g: fx.Graph, x: fx.Node, ring: fx.Node) -> object:
        rows, index = g.placeholder("rows"), g.placeholder("index")
        before = g.call_function(OPS.take_rows.default, (ring, index, "suffix"))
        same = g.call_function(OPS.take_rows.default, (ring, index, "suffix"))
        g.call_function(OPS.window_commit.default, (x, rows, ring))
        after = g.call_function(OPS.take_rows.default, (ring, index, "suffix"))
        return before, same, after

    result = rewrite(build(body))
    assert result.num_matches == 1
    (output,) = (n for n in result.graph.nodes if n.op == "output")
    before, same, after = output.args[0]
    assert before is same and after is not before


def test_a_result_that_was_written_since_is_not_reused() -> None:
    """take; write into what was taken; take again: the second user must not see the mutated tensor."""
    def body(g: fx.Graph, x: fx.Node, ring: fx.Node) -> object:
        rows, index = g.placeholder("rows"), g.placeholder("index")
        first = g.call_function(OPS.take_rows.default, (ring, index, "suffix"))
        g.call_function(OPS.window_commit.default, (x, rows, first))
        return first, g.call_function(OPS.take_rows.default, (ring, index, "suffix"))

    assert rewrite(build(body)).num_matches == 0


def test_a_write_through_a_view_counts_for_what_it_looks_at() -> None:
    def body(g: fx.Graph, x: fx.Node, ring: fx.Node) -> object:
        rows, index = g.placeholder("rows"), g.placeholder("index")
        before = g.call_function(OPS.take_rows.default, (ring, index, "suffix"))
        view = g.call_function(torch.ops.aten.view.default, (ring, [3, 4, 8]))
        g.call_function(OPS.window_commit.default, (x, rows, view))
        return before, g.call_function(OPS.take_rows.default, (ring, index, "suffix"))

    assert rewrite(build(body)).num_matches == 0


def test_a_write_by_keyword_counts_too() -> None:
    def body(g: fx.Graph, x: fx.Node, ring: fx.Node) -> object:
        rows, index = g.placeholder("rows"), g.placeholder("index")
        before = g.call_function(OPS.take_rows.default, (ring, index, "suffix"))
        g.call_function(OPS.window_commit.default, (x, rows), {"window": ring})
        return before, g.call_function(OPS.take_rows.default, (ring, index, "suffix"))

    assert rewrite(build(body)).num_matches == 0
