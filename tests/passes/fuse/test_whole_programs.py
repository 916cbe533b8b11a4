"""Every method of the tiny checkpoint: fused and unfused programs give the same bits of results and state."""

from __future__ import annotations

import functools
from collections import Counter
from pathlib import Path

import pytest

from dsv41c.compiler.pass_driver import run_passes
from dsv41c.compiler.pipeline import PIPELINE, run_pipeline
from dsv41c.compiler.program import Program, op_name
from dsv41c.passes.base import Pass, Stage
from tests.passes.programs import assert_same_run
from tests.passes.tiny import FLOWS, NUMERICS, Model, Outcome, load, outcome

FUSIONS = tuple(step for step in PIPELINE if step.stage is Stage.FUSE)
REUSE = ["mhc_site", "linear_pair", "norm_cast", "linear", "norm_rope_cast", "mega_sparse_attention", "grouped_out",
         "linear", "mhc_site", "mega_gate", "mega_moe"]  # of layer 5: neither Engram, nor keys, nor an index


@functools.cache
def model(path: Path, numerics: str) -> Model:
    return load(path, numerics)


@functools.cache
def unfused(path: Path, numerics: str, flow: tuple[str, ...]) -> Outcome:
    given = model(path, numerics)
    return outcome(given, given.program, flow)


def alone(step: Pass, program: Program) -> Program:
    return run_passes(program, (step,), left_out=step.requires).program


@pytest.mark.parametrize("flow", FLOWS, ids="-".join)
@pytest.mark.parametrize("numerics", NUMERICS)
@pytest.mark.parametrize("step", PIPELINE, ids=lambda s: s.name)
def test_each_pass_alone_keeps_every_bit(step: Pass, numerics: str, flow: tuple[str, ...],
                                         tiny_checkpoint: Path) -> None:
    given = model(tiny_checkpoint, numerics)
    assert_same_run(unfused(tiny_checkpoint, numerics, flow), outcome(given, alone(step, given.program), flow))


@pytest.mark.parametrize("flow", FLOWS, ids="-".join)
@pytest.mark.parametrize("numerics", NUMERICS)
def test_all_passes_together_keep_every_bit(numerics: str, flow: tuple[str, ...], tiny_checkpoint: Path) -> None:
    given = model(tiny_checkpoint, numerics)
    fused = run_pipeline(given.program).program
    assert_same_run(unfused(tiny_checkpoint, numerics, flow), outcome(given, fused, flow))
    assert str(run_passes(fused, PIPELINE).program.methods["decode"].graph) == str(fused.methods["decode"].graph)


@pytest.mark.parametrize("left_out", FUSIONS, ids=lambda s: s.name)
def test_all_but_one_keep_every_bit(left_out: Pass, tiny_checkpoint: Path) -> None:
    given, flow = model(tiny_checkpoint, "bfloat16 fake"), FLOWS[0]
    fused = run_pipeline(given.program, (left_out.name,)).program
    assert_same_run(unfused(tiny_checkpoint, "bfloat16 fake", flow), outcome(given, fused, flow))


def test_counts_follow_from_the_config(tiny_checkpoint: Path) -> None:
    """Sites, layers and index sources of the uncut program, by what config.json says."""
    given = model(tiny_checkpoint, "bfloat16 fake")
    config, program = given.config, run_pipeline(given.program).program
    found = Counter(op_name(n) for n in program.methods["decode"].graph.nodes)
    layers = config.num_hidden_layers
    windows = sum(config.ratio(layer) == 0 for layer in range(layers))
    opened = len({0, *config.engram_layer_ids})
    wanted = {"mhc_site": 2 * layers - opened, "mhc_open": opened, "mhc_norm": 1, "mega_moe": layers,
              "mega_gate": layers, "linear_pair": layers + len(config.index_source_layer_ids),
              "norm_cast": layers, "norm_rope_cast": layers, "mega_window_attention": windows,
              "mega_sparse_attention": layers - windows, "grouped_out": layers}
    assert {name: found[name] for name in wanted} == wanted


def test_a_reuse_layer_is_eleven_calls(tiny_checkpoint: Path) -> None:
    given = model(tiny_checkpoint, "bfloat16 fake")
    assert calls_of_layer(run_pipeline(given.program).program, 5) == REUSE


def calls_of_layer(program: Program, layer: int) -> list[str]:
    """Ops from the call that reads the layer's first weight to the one before the next layer's first."""
    nodes = [n for n in program.methods["decode"].graph.nodes if op_name(n) is not None]
    def first(number: int) -> int:
        return next(i for i, n in enumerate(nodes)
                    if any(f"layers.{number}." in str(a.meta.get("name", "")) for a in n.all_input_nodes))
    return [str(op_name(n)) for n in nodes[first(layer):first(layer + 1)]]


def test_neighbours_that_commute_give_one_program_in_any_order(tiny_checkpoint: Path) -> None:
    given = model(tiny_checkpoint, "bfloat16 fake")
    last = tuple(s for s in PIPELINE if s.commutes and s.stage is Stage.FUSE and s.name != "mega_mhc")
    first = tuple(s for s in PIPELINE if s not in last)
    assert (*first, *last) == PIPELINE
    texts = {str(run_passes(given.program, (*first, *order)).program.methods["decode"].graph)
             for order in (last, last[::-1])}
    assert len(texts) == 1
