"""Interpreter and bisection: the program computes what the eager model computes, and a wrong pass is told by name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import fx

from dsv41c.compiler.bisect import Lockstep, Verdict, bisect
from dsv41c.compiler.bits import first_mismatch
from dsv41c.compiler.checkpoint.view import CheckpointView
from dsv41c.compiler.driver import capture_program
from dsv41c.compiler.eager import EagerModel, request_rows
from dsv41c.compiler.interpret import ProgramModel, Seen
from dsv41c.compiler.model.state import make_state, state_specs
from dsv41c.compiler.options import CompileOptions
from dsv41c.compiler.pass_driver import run_passes
from dsv41c.compiler.program import Program, op_name
from dsv41c.compiler.weights import load_weights, weight_recipes
from dsv41c.passes.base import GraphResult, Match, Pass, PassResult, Stage, per_method
from dsv41c.passes.canonicalize.merge_equal_calls import MergeEqualCalls
from dsv41c.passes.fuse.mega_attention import MegaAttention
from dsv41c.passes.fuse.mega_mhc import MegaMhc
from dsv41c.runtime.generate import generate
from dsv41c.runtime.limits import Limits
from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.runtime.requests import Request

GOOD = (MergeEqualCalls(), MegaMhc(), MegaAttention())
PROMPT = [3, 10, 17, 24, 31]


@dataclass(frozen=True)
class ChangeArgument(Pass):
    """Wrong on purpose: another number as argument `position` of call number `number` of an op in one method."""

    name = "change_argument"
    stage = Stage.FUSE
    method: str
    op: str
    number: int
    position: int
    value: object

    def apply(self, program: Program) -> PassResult:
        return per_method(program, self._rewrite)

    def _rewrite(self, method: str, graph: fx.Graph) -> GraphResult:
        copy = fx.Graph()
        nodes: dict[fx.Node, fx.Node] = {}
        for node in graph.nodes:
            nodes[node] = copy.node_copy(node, nodes.__getitem__)
            nodes[node].meta = dict(node.meta)
        calls = [n for n in copy.nodes if op_name(n) == self.op]
        if method != self.method:
            return GraphResult(copy, 0)
        node = calls[self.number]
        node.update_arg(self.position, self.value)
        return GraphResult(copy, 1, (Match(method, node.name, node.name, (node.name,)),))


@dataclass(frozen=True)
class Setup:
    program: Program
    options: CompileOptions
    view: CheckpointView
    weights: dict[str, torch.Tensor]

    def model(self, program: Program, seen: Seen | None = None) -> ProgramModel:
        return ProgramModel(program, self.weights, self.state(), seen)

    def state(self) -> dict[str, torch.Tensor]:
        return make_state(state_specs(self.view.config, self.options), "cpu")

    def bisect(self, *passes: Pass) -> Verdict:
        limits = Limits(64, 4, 24, 16, self.view.config.vocab_size, frozenset())

        def drive(executor: Lockstep) -> object:
            return generate(executor, limits, [Request(PROMPT, 3, ignore_eos=True)])

        return bisect(self.program, passes, self.model, drive)


@pytest.fixture(scope="module")
def setup(tiny_checkpoint: Path) -> Setup:
    view = CheckpointView.open(tiny_checkpoint)
    options = CompileOptions(max_model_len=64, block_size=16, max_num_seqs=4,
                             max_num_batched_tokens=24).resolved(view.config)
    weights = load_weights(view, weight_recipes(view, options))
    specs = state_specs(view.config, options)
    shapes = {name: torch.empty_like(w, device="meta") for name, w in weights.items()}
    return Setup(capture_program(view.config, options, shapes, specs), options, view, weights)


@pytest.mark.parametrize("passes", [(), GOOD], ids=["captured", "fused"])
def test_a_program_computes_the_bits_of_the_eager_model(setup: Setup, passes: tuple[Pass, ...]) -> None:
    """Prefill of two requests through encoder, decoder and head, then decode steps: outputs and all state."""
    eager = EagerModel(setup.view.config, setup.options, setup.weights)
    ran: dict[str, None] = {}
    piped = run_passes(setup.program, passes)
    model = setup.model(piped.program, lambda method, node, value: ran.update({method.name: None}))
    prefill = np.concatenate([request_rows(slot, prompt, 0, setup.options)
                              for slot, prompt in ((0, PROMPT), (2, PROMPT[::-1]))])
    steps = [(prefill, np.array([len(PROMPT) - 1, 2 * len(PROMPT) - 1], np.int32))]
    for position in range(len(PROMPT), len(PROMPT) + 2):
        rows = [request_rows(slot, [-1], position, setup.options) for slot in (0, 2)]
        steps.append((np.concatenate(rows), np.array([0, 1], np.int32)))
    for upload, logit_rows in steps:
        logits, tokens = eager.step(upload, None, logit_rows)
        made = model.step(upload, None, logit_rows)
        pairs = [(made["logits"], logits), (made["tokens"], tokens)]
        pairs += [(model.state[name], eager.state[name]) for name in eager.state]
        assert [first_mismatch(a, b) for a, b in pairs] == [None] * len(pairs)
    assert list(ran) == ["encoder", "decoder", "head", "decode"]


def test_without_wanted_logits_the_head_does_not_run(setup: Setup) -> None:
    model = setup.model(setup.program)
    assert model.step(request_rows(0, PROMPT, 0, setup.options), None, np.zeros(0, np.int32)) == {}
    assert int(model.state["slot_position"][0]) == len(PROMPT)


def test_a_step_that_fits_no_flow_is_refused(setup: Setup) -> None:
    with pytest.raises(Dsv41cError) as caught:
        setup.model(setup.program).step(request_rows(0, [1] * 25, 0, setup.options), None, np.zeros(0, np.int32))
    assert caught.value.code == "DSV41C-E0801"


def test_good_passes_are_equal(setup: Setup) -> None:
    verdict = setup.bisect(*GOOD)
    assert (verdict.first, verdict.difference, verdict.site) == (None, None, None)
    assert [(p.name, p.is_equal) for p in verdict.passes] == [(p.name, True) for p in GOOD]
    assert all(p.num_matches and p.steps == 3 for p in verdict.passes)


def test_a_pass_that_changes_nothing_is_not_run(setup: Setup) -> None:
    """Its program is the one before."""
    again = setup.bisect(MergeEqualCalls(), MergeEqualCallsAgain())
    assert [(p.num_matches, p.steps, p.is_equal) for p in again.passes] == [(2, 3, True), (0, 0, True)]


def test_a_pass_that_breaks_the_program_is_refused_before_anything_runs(setup: Setup) -> None:
    with pytest.raises(Dsv41cError) as caught:
        setup.bisect(ChangeArgument("head", "greedy_token", 0, 0, None))
    assert (caught.value.code, caught.value.subject) == ("DSV41C-E0305", "pass change_argument")


@dataclass(frozen=True)
class MergeEqualCallsAgain(MergeEqualCalls):
    """Under another name, so that both may stand in one pipeline."""

    name = "merge_equal_calls_again"


@pytest.mark.parametrize(("wrong", "step"), [
    (ChangeArgument("decoder", "rms_norm", 3, 2, 0.5), 0),
    (ChangeArgument("encoder", "rms_norm", 3, 2, 0.5), 0),
    (ChangeArgument("decode", "rms_norm", 5, 2, 0.5), 1),
], ids=["decoder", "encoder", "decode"])
def test_a_wrong_pass_is_told_with_its_place(setup: Setup, wrong: ChangeArgument, step: int) -> None:
    """Name, step, value, node and rewrite; the passes behind it are not run, those before are equal."""
    verdict = setup.bisect(MegaMhc(), wrong, MegaAttention())
    assert verdict.first == "change_argument"
    assert [p.is_equal for p in verdict.passes] == [True, False, None]
    assert verdict.difference is not None and verdict.site is not None
    assert verdict.difference.step == step
    assert verdict.difference.mismatch.found != verdict.difference.mismatch.needed
    assert verdict.site.method == wrong.method and verdict.site.match is not None
    assert verdict.site.match.made == verdict.site.node  # the changed call itself is the first that differs


def test_the_rewrite_before_a_differing_value_is_named(setup: Setup) -> None:
    """A fused call has no counterpart: the first value that both programs have lies behind it."""
    fused = run_passes(setup.program, (MegaMhc(),)).program
    method = fused.methods["decode"].graph
    calls = [n for n in method.nodes if op_name(n) == "mhc_site"]

    @dataclass(frozen=True)
    class WrongMhc(MegaMhc):
        """Puts in the right calls, then one of them with another epsilon."""

        name = "wrong_mhc"

        def apply(self, program: Program) -> PassResult:
            result = super().apply(program)
            node = next(n for n in result.program.methods["decode"].graph.nodes if n.name == calls[2].name)
            node.update_arg(10, 0.5)
            return result

    verdict = setup.bisect(MergeEqualCalls(), WrongMhc())
    assert verdict.first == "wrong_mhc" and verdict.site is not None and verdict.site.match is not None
    assert (verdict.site.match.method, verdict.site.match.made) == ("decode", calls[2].name)
    assert op_name(next(n for n in setup.program.methods["decode"].graph.nodes if n.name == verdict.site.node))


# --- bits -------------------------------------------------

def test_bits_tell_what_values_hide() -> None:
    """NaN equals itself, zero is not minus zero; a NaN of other bits differs; the first place is named."""
    a = torch.tensor([[1.0, float("nan")], [0.0, 2.0]])
    assert first_mismatch(a, a.clone()) is None
    b = a.clone()
    b[1, 0] = -0.0
    found = first_mismatch(a, b)
    assert found is not None and (found.index, found.found, found.needed) == ((1, 0), "0.0", "-0.0")
    other = first_mismatch(a, a.bfloat16())
    assert other is not None and (other.index, other.found, other.needed) == ((), "float32 [2, 2]", "bfloat16 [2, 2]")
    codes = torch.tensor([1, 2], dtype=torch.int32)
    wrong = first_mismatch(codes, codes + torch.tensor([0, 1], dtype=torch.int32))
    assert wrong is not None and (wrong.index, wrong.found, wrong.needed) == ((1,), "2", "3")
