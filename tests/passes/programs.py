"""Small programs from Python functions over declared ops, and their execution on concrete tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from dsv41c.compiler.ops import catalog  # noqa: F401  registers the ops
from dsv41c.compiler.pass_driver import run_passes
from dsv41c.compiler.program import Method, Origin, Program, Symbol, op_name
from dsv41c.passes.base import Match, Pass, Refusal

OPS = torch.ops.dsv41c
Values = Mapping[str, torch.Tensor]
F32, BF16, I32 = torch.float32, torch.bfloat16, torch.int32
NUMERICS = {"float32 off": (F32, False), "float32 fake": (F32, True), "bfloat16 fake": (BF16, True)}


@dataclass(frozen=True)
class Small:
    """A program of one method, and concrete tensors for its placeholders."""

    program: Program
    values: Values

    @property
    def graph(self) -> fx.Graph:
        return self.program.methods["decode"].graph

    def ops(self) -> list[str]:
        return [name for n in self.graph.nodes if (name := op_name(n)) is not None]


def small(body: Callable[..., Sequence[torch.Tensor]], values: Values, state: Sequence[str] = ()) -> Small:
    """`body(**values)` as the method `decode`; it returns the results. Names in `state` are state tensors."""
    names = list(values)

    def positional(*given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(body(**dict(zip(names, given, strict=True))))

    graph = make_fx(positional, tracing_mode="fake")(*values.values()).graph
    for node, name in zip(graph.find_nodes(op="placeholder"), names, strict=True):
        node._rename(name)
        node.meta |= {"origin": Origin.STATE if name in state else Origin.INPUT, "name": name}
    for node in graph.nodes:
        if node.op == "call_function":
            node.meta.setdefault("val", None)  # a call that only writes
    results = tuple(graph.output_node().args[0])
    graph.output_node().args = (results,)
    outputs = tuple(f"result_{i}" for i in range(len(results)))
    return Small(Program({"decode": Method("decode", "rows", Symbol("D", 1, 64), graph, outputs, ())}), values)


def run(graph: fx.Graph, values: Values) -> tuple[tuple[torch.Tensor, ...], Values]:
    """The results, and every placeholder's tensor as it is afterwards, state among them."""
    kept = {name: value.clone() for name, value in values.items()}
    given = [kept[n.meta["name"]] for n in graph.find_nodes(op="placeholder")]
    with torch.no_grad():
        results = fx.Interpreter(fx.GraphModule(torch.nn.Module(), graph)).run(*given)
    return tuple(results), kept


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return a.numel() == 0 or torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))


def assert_same_run(before: tuple[Any, Values], after: tuple[Any, Values]) -> None:
    assert len(before[0]) == len(after[0])
    assert all(map(same_bits, before[0], after[0]))
    for name, value in before[1].items():
        assert same_bits(value, after[1][name]), name


def apply(step: Pass, given: Small) -> tuple[Small, list[Match], list[Refusal]]:
    """Through the driver, which checks the program before and after."""
    piped = run_passes(given.program, (step,), left_out=step.requires)
    notes = piped.records[0].notes
    return (Small(piped.program, given.values), [n for n in notes if isinstance(n, Match)],
            [n for n in notes if isinstance(n, Refusal)])


def assert_fused(step: Pass, given: Small, *made: str) -> Small:
    """The pass makes calls of exactly these fused ops, the second time none, and no bit changes."""
    after, matches, _ = apply(step, given)
    fused = [name for name in after.ops() if name in step.ops]  # type: ignore[attr-defined]
    assert fused == list(made) and len(matches) == len(made), after.ops()
    again, more, _ = apply(step, after)
    assert not more and str(again.graph) == str(after.graph)
    assert_same_run(run(given.graph, given.values), run(after.graph, given.values))
    return after


def refusal(step: Pass, given: Small) -> str:
    """The reason at the one site of a program that the pass leaves as it is; reasons of further sites follow."""
    after, matches, refused = apply(step, given)
    assert not matches and after.ops() == given.ops()
    return "\n".join(r.reason for r in refused)


# --- tensors ---------------------------------------------------------------------------------------------------------


def normal(seed: int, *sizes: int, dtype: torch.dtype = F32) -> torch.Tensor:
    return torch.randn(sizes, generator=torch.Generator().manual_seed(seed)).to(dtype)


def fp8(seed: int, rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    """An FP8 weight with its scales, one a block of 32x32."""
    codes = torch.randint(119, 128, (-(-rows // 32), -(-columns // 32)), dtype=torch.uint8,
                          generator=torch.Generator().manual_seed(seed))
    return normal(seed, rows, columns).to(torch.float8_e4m3fn), codes.view(torch.float8_e8m0fnu)


def fp4(seed: int, *sizes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Packed FP4 experts `[..., K/2]` with scales `[..., K/32]`."""
    generator = torch.Generator().manual_seed(seed)
    *front, columns = sizes
    codes = torch.randint(-128, 128, (*front, columns // 2), dtype=torch.int8, generator=generator)
    scales = torch.randint(120, 127, (*front, columns // 32), dtype=torch.uint8, generator=generator)
    return codes, scales.view(torch.float8_e8m0fnu)


def row_table() -> torch.Tensor:
    """Five rows: three of slot 0 from position 9 on, one of slot 1, one pad."""
    return torch.tensor([[0, 9, 9, 0, 3, 7, 0, 0], [0, 10, 9, 0, 3, 8, 0, 0], [0, 11, 9, 0, 3, 9, 0, 2],
                         [1, 4, 4, 3, 1, 5, 0, 0], [2, 0, 0, 4, 1, 0, 0, 4]], dtype=I32)


def angles(seed: int, pairs: int, positions: int = 16) -> torch.Tensor:
    angle = normal(seed, positions, pairs)
    return torch.stack((angle.cos(), angle.sin()), -1)
