"""PlanReference: the plan run through torch references agrees with the executor, so the plan itself is right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from dsv41c.compiler.checkpoint.view import CheckpointView
from dsv41c.compiler.driver import compile_plan
from dsv41c.compiler.eager import request_rows
from dsv41c.compiler.options import CompileOptions
from dsv41c.compiler.reference import PlanReference
from dsv41c.compiler.weights import load_weights
from dsv41c.runtime.load import load
from dsv41c.runtime.plan import codec

OPTIONS = {"dtype": "float32", "quantizers": "off", "max_model_len": 64, "block_size": 4, "max_num_seqs": 8,
           "max_num_batched_tokens": 32}


@pytest.fixture(scope="module")
def reference(tiny_checkpoint: Path) -> PlanReference:
    compiled = compile_plan(CheckpointView.open(tiny_checkpoint), CompileOptions(**OPTIONS), lambda _: None)
    return PlanReference(compiled.plan, load_weights(compiled.view, compiled.recipes))


@pytest.mark.parametrize("cuts", [(), (9,), (5, 6, 19)])
def test_prefill_and_decode_agree_with_the_executor(reference: PlanReference, cuts: tuple[int, ...],
                                                    compiled_artifact: Callable[..., Path]) -> None:
    """Chunked prefill through encoder, decoder and head, then decode steps: logits within 1e-5, tokens equal."""
    options = CompileOptions(**OPTIONS)
    tokens = [int(t) for t in np.random.default_rng(5).integers(0, 96, 24)]
    with load(compiled_artifact("tiny", 0, **OPTIONS)) as runtime:
        position = 0
        for take in np.diff([0, *cuts, 20]).tolist() + [1, 1, 1, 1]:
            rows = request_rows(2, tokens[position : position + take], position, options)
            keep, last = np.arange(take, dtype=np.int32), np.array([take - 1], dtype=np.int32)
            runtime.step(rows, keep, last)
            outputs = reference.step(rows, keep, last, "decode" if take == 1 else "prefill")
            position += take
            expected, found = outputs["logits"].double(), torch.from_numpy(runtime.output("logits").copy()).double()
            assert torch.linalg.norm(found - expected) <= 1e-5 * torch.linalg.norm(expected)
            assert runtime.output("tokens").tolist() == outputs["tokens"].tolist()


def test_the_artifact_holds_the_plan_that_the_compiler_made(reference: PlanReference,
                                                            compiled_artifact: Callable[..., Path]) -> None:
    """Two compilations of one checkpoint with the same options give the same kernels, methods and memory."""
    packed = codec.decode((compiled_artifact("tiny", 0, **OPTIONS) / "plan.json").read_bytes())
    for part in ("symbols", "memory", "weights", "state", "bridges", "kernels", "methods", "flows"):
        assert getattr(packed, part) == getattr(reference.plan, part)
