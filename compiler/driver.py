"""compile_checkpoint: the only place that knows the whole order from a checkpoint directory to an artifact."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

from dsv41c.compiler import breaks
from dsv41c.compiler.artifact import Packed, SelfTest, write_artifact
from dsv41c.compiler.bucket_policy import buckets_of
from dsv41c.compiler.capture import capture, capture_draft
from dsv41c.compiler.checkpoint.view import CheckpointView, without_data
from dsv41c.compiler.config import ModelConfig
from dsv41c.compiler.cuda_bodies import CudaBodies
from dsv41c.compiler.eager import EagerModel
from dsv41c.compiler.kernels.cache_directory import cache_directory
from dsv41c.compiler.lower import Choices, lower
from dsv41c.compiler.methods import build_draft_method, build_methods
from dsv41c.compiler.model.draft import DraftModel
from dsv41c.compiler.model.state import StateSpec, make_state, state_specs
from dsv41c.compiler.model.transformer import Transformer
from dsv41c.compiler.options import CompileOptions
from dsv41c.compiler.output_directory import refuse_existing
from dsv41c.compiler.pass_driver import PassRecord
from dsv41c.compiler.pipeline import run_pipeline
from dsv41c.compiler.program import Program, flows_of
from dsv41c.compiler.weight_map import map_weights
from dsv41c.compiler.weights import Recipe, WeightsOnDemand, load_weights, weight_recipes, weight_shapes
from dsv41c.graphs.plan_need import check_plan
from dsv41c.passes.base import Pass, PassResult
from dsv41c.runtime.plan import schema
from dsv41c.runtime.plan.verify import verify

Progress = Callable[[str], None]
_SELF_TEST_TOKENS = 8


@dataclass(frozen=True)
class Compiled:
    """A plan with what is needed to pack it."""

    plan: schema.Plan
    view: CheckpointView
    options: CompileOptions
    recipes: dict[str, Recipe]
    cubins: dict[str, bytes]
    passes: tuple[PassRecord, ...]


class Watch(Protocol):
    """Sees the program before the first pass and after each one."""

    def captured(self, program: Program) -> None: ...

    def passed(self, step: Pass, before: Program, result: PassResult) -> None: ...


def capture_program(config: ModelConfig, options: CompileOptions, weights: Mapping[str, torch.Tensor],
                    specs: tuple[StateSpec, ...]) -> Program:
    """The model cut into methods, and the method of its draft where drafts are wanted, before any pass. Of `weights`
    the shapes and dtypes are read."""
    state = make_state(specs, "meta")
    model = Transformer(config, options, weights, state)
    program = build_methods(capture(model, options.max_num_batched_tokens), options)
    if not options.draft_len:
        return program
    drafter = DraftModel(config, options, weights, state)
    draft = build_draft_method(capture_draft(drafter, options.max_num_seqs), options)
    return Program({**program.methods, draft.name: draft})


def compile_plan(view: CheckpointView, options: CompileOptions, progress: Progress,
                 watch: Watch | None = None) -> Compiled:
    """Capture, cut, rewrite and lower. Reads headers only; no weight bytes."""
    fused = fuse(view, options, progress, watch)
    progress("lowering to a plan")
    cuda = None
    if fused.options.target != "cpu":
        cache = cache_directory()
        cuda = CudaBodies(fused.options.target, cache and cache / "kernels", frozenset(fused.options.fallback),
                          fused.options.batch_invariant == "on")
    plan = lower_fused(fused, fused.program, fused.options, cuda)
    verify(plan)
    used = {w.name for w in plan.weights}
    return Compiled(plan, view, fused.options, {n: r for n, r in fused.recipes.items() if n in used},
                    cuda.cubins if cuda else {}, fused.passes)


@dataclass(frozen=True)
class Fused:
    """The program behind the last pass, and what it was captured from; `options` are resolved."""

    program: Program
    view: CheckpointView
    options: CompileOptions
    recipes: dict[str, Recipe]
    passes: tuple[PassRecord, ...]


def fuse(view: CheckpointView, options: CompileOptions, progress: Progress, watch: Watch | None = None) -> Fused:
    """Everything before lowering."""
    options = options.resolved(view.config)
    breaks.check_declared(options.breaks)
    recipes = weight_recipes(view, options)
    specs = state_specs(view.config, options)
    progress("capturing the model")
    program = capture_program(view.config, options, weight_shapes(view, recipes), specs)
    if watch is not None:
        watch.captured(program)
    progress("running passes")
    piped = run_pipeline(program, options.without, None if watch is None else watch.passed)
    breaks.check_used(options.breaks, piped.program)
    return Fused(piped.program, view, options, recipes, piped.records)


def lower_fused(fused: Fused, program: Program, options: CompileOptions, cuda: CudaBodies | None) -> schema.Plan:
    """The plan of `program`: the fused one, or the same at other sizes with the options that say so."""
    provenance = schema.Provenance(fused.view.model_digest, options.to_json(), producer())
    specs = state_specs(fused.view.config, options)
    choices = Choices(cuda, flows_of(program), options.breaks, buckets_of(options))
    return lower(program, specs, options.max_num_seqs, provenance, choices)


def compile_checkpoint(checkpoint: Path, output: Path, options: CompileOptions, progress: Progress,
                       watch: Watch | None = None, budget: int | None = None) -> Compiled:
    """Write the artifact directory `output`, which must not exist (E0605). Above a `budget` in bytes of all memory
    beside the weights nothing is written (E0405)."""
    refuse_existing(output, "DSV41C-E0605")
    view = CheckpointView.open(checkpoint, draft=options.draft_len > 0)
    if view.headers_only and not options.plan_only:
        raise without_data(checkpoint)
    if not options.plan_only:
        view.token_map()  # refused before the long work
    compiled = compile_plan(view, options, progress, watch)
    if budget is not None:
        check_plan(compiled.plan, budget)
    if options.plan_only:
        progress("writing the plan")
        write_artifact(output, compiled.plan, view, compiled.options, Packed(compiled.cubins, compiled.passes))
        return compiled
    mapping = map_weights(view, compiled.recipes) if options.weights == "map" else None
    elsewhere = mapping.names if mapping else frozenset()
    progress("reading weights")
    weights = load_weights(view, {name: r for name, r in compiled.recipes.items() if name not in elsewhere})
    progress("recording the self-test")
    self_test = record_self_test(view, compiled.options,
                                 WeightsOnDemand(view, compiled.recipes) if mapping else weights)
    progress("writing weights and plan")
    packed = Packed(compiled.cubins, compiled.passes, weights, self_test, mapping)
    write_artifact(output, compiled.plan, view, compiled.options, packed)
    return compiled


def record_self_test(view: CheckpointView, options: CompileOptions,
                     weights: dict[str, torch.Tensor] | WeightsOnDemand) -> SelfTest:
    """Greedy tokens of the eager model for one prompt of fixed ids, to be repeated by the executor."""
    config, limit = view.config, options.max_model_len or 0
    prompt = [(7 * i + 3) % config.vocab_size for i in range(max(1, min(12, limit - _SELF_TEST_TOKENS)))]
    model = EagerModel(config, options, weights)
    tokens = model.generate(prompt, min(_SELF_TEST_TOKENS, limit - len(prompt)))
    return SelfTest(tuple(prompt), tuple(tokens))


def producer() -> str:
    from dsv41c import __version__

    return f"dsv41c {__version__}"
