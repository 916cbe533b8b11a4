"""Program text: what is printed parses to the same program, for random programs and for the captured model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dsv41c.compiler.checkpoint.view import CheckpointView
from dsv41c.compiler.driver import capture_program
from dsv41c.compiler.model.state import state_specs
from dsv41c.compiler.options import CompileOptions
from dsv41c.compiler.pass_driver import run_passes
from dsv41c.compiler.program import Program
from dsv41c.compiler.program_text.parser import parse_program
from dsv41c.compiler.program_text.printer import describe, print_program
from dsv41c.compiler.weights import weight_recipes, weight_shapes
from dsv41c.passes.canonicalize.merge_equal_calls import MergeEqualCalls
from dsv41c.passes.fuse.mega_attention import MegaAttention
from dsv41c.passes.fuse.mega_mhc import MegaMhc

HEAD = """method {name} rows {symbol} in 1..{hi} {{
  input %x : bfloat16 [{symbol}, 64] = "x"
  input %streams : bfloat16 [{symbol}, 4, 64] = "streams"
  weight %norm : bfloat16 [64] = {weight}
  weight %square : bfloat16 [64, 64] = "square"
  weight %fn : float32 [24, 256] = "fn"
  weight %scale : float32 [3] = "scale"
  weight %base : float32 [24] = "base"
"""
EPSILONS = st.sampled_from(["1e-06", "1e-20", "0.5", "3e+16"])


@st.composite
def lines(draw: st.DrawFn, number: int, values: list[str]) -> str:
    """One line that makes value number `number` from one of `values`, all of them bfloat16 [rows, 64]."""
    x = draw(st.sampled_from(values))
    made = f"%v{number}"
    match draw(st.integers(0, 5)):
        case 0:
            return f"{made} = rms_norm({x}, %norm, {draw(EPSILONS)})"
        case 1:
            return f"{made} = linear({x}, %square, None, bfloat16)  # a comment with %marks and {{"
        case 2:
            return f"%h{number} = view({x}, [-1, 4, 16])\n{made} = view(%h{number},\n    [-1, 64])"
        case 3:
            members = [draw(st.sampled_from(["_", f"%m{number}_{i}x"])) for i in range(2)]
            call = f"mhc_mix(%streams, %fn, %scale, %base, 20, {draw(EPSILONS)}, 1e-06)"
            alpha = f"%alpha{number}"
            return f"{alpha}, {', '.join(members)} = {call}\n{made} = mhc_collapse(%streams, {alpha})"
        case 4:
            call = "mhc_mix(%streams, %fn, %scale, %base, 20, 1e-06, hc_eps=1e-06) "
            return (f"%t{number} = {call}\n%u{number} = quantize_fp8({x})\n%a{number} = getitem(%t{number}, 0)\n"
                    f"{made} = mhc_collapse(%streams, %a{number})")
        case _:
            return f"%n{number} = sym_size({x}, 0)\n{made} = view({x}, [%n{number}, 64])"


@st.composite
def texts(draw: st.DrawFn) -> str:
    """One or two methods of up to six steps, written as a person might."""
    methods = []
    for name, symbol in zip(draw(st.sampled_from([["decode"], ["encoder", "head"]])), "DR", strict=False):
        weight = json.dumps(draw(st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=8)))
        body, values = [HEAD.format(name=name, symbol=symbol, hi=draw(st.integers(1, 99)), weight=weight)], ["%x"]
        for number in range(draw(st.integers(0, 6))):
            body.append(draw(lines(number, values)))
            values.append(f"%v{number}")
        body.append(f"return logits={values[-1]}, bridge \"a b\"=%x\n}}\n")
        methods.append("\n".join(body))
    return "\n\n".join(methods)


def shape(program: Program) -> object:
    """Everything that the text carries, node by node."""
    return [(m.name, m.axis, m.symbol, m.outputs, m.bridges_out,
             [(n.op, n.name, str(n.target) if n.op != "output" else "", str(n.args), str(n.kwargs),
               n.meta.get("origin"), n.meta.get("name"), describe(n.meta.get("val"), m.symbol.name))
              for n in m.graph.nodes]) for m in program.methods.values()]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(texts())
def test_printing_and_parsing_are_inverse(text: str) -> None:
    program = parse_program(text)
    printed = print_program(program)
    again = parse_program(printed)
    assert print_program(again) == printed
    assert shape(again) == shape(program)


def test_the_form_of_the_text() -> None:
    """One of everything, as it is printed."""
    text = '''method decode rows D in 1..16 {
  state %ring : bfloat16 [17, 8, 32] = "window_0"
  input %rows : int32 [D, 8] = "rows"
  bridge %kv : bfloat16 [D, 32] = "kv"
  weight %w : bfloat16 [32] = "layers.0.norm.weight"
  weight %embed : bfloat16 [96, 32] = "embed.weight"
  %x, %alpha = embed_expand(%rows, %embed, 4, bfloat16) as %embed_expand  # bfloat16 [D, 4, 32], float32 [D, 4]
  %y = mhc_collapse(%x, %alpha)                                           # bfloat16 [D, 32]
  %z = rms_norm(%y, %w, 1e-06)                                            # bfloat16 [D, 32]
  window_commit(%z, %rows, %ring) as %window_commit
  %pairs = view(%z, [-1, 16])                                             # bfloat16 [2*D, 16]
  return out=%z, bridge pairs=%pairs
}
'''
    assert print_program(parse_program(text)) == text


def test_a_call_may_stay_without_a_name() -> None:
    """The name is then that of the op, as capture would choose it."""
    text = print_program(parse_program('''method m rows D in 1..2 {
      input %rows : int32 [D, 8] = "rows"
      weight %embed : bfloat16 [96, 32] = "embed.weight"
      %x, _ = embed_expand(%rows, %embed, 4, bfloat16)
      return out=%x }'''))
    assert "%x, _ = embed_expand(%rows, %embed, 4, bfloat16) as %embed_expand" in text


@pytest.fixture(scope="module")
def tiny(tiny_checkpoint: Path) -> Program:
    view = CheckpointView.open(tiny_checkpoint)
    options = CompileOptions(max_model_len=64, block_size=16, max_num_seqs=4,
                             max_num_batched_tokens=24).resolved(view.config)
    weights = weight_shapes(view, weight_recipes(view, options))
    return capture_program(view.config, options, weights, state_specs(view.config, options))


def test_the_captured_model_round_trips_and_passes_find_the_same(tiny: Program) -> None:
    """Records of every pass and the text behind the last one are equal, whether the program went through text."""
    text = print_program(tiny)
    parsed = parse_program(text)
    assert print_program(parsed) == text and shape(parsed) == shape(tiny)
    passes = (MergeEqualCalls(), MegaMhc(), MegaAttention())
    piped, again = run_passes(tiny, passes), run_passes(parsed, passes)
    assert piped.records == again.records
    assert all(record.num_matches for record in piped.records)
    assert print_program(again.program) == print_program(piped.program)
