"""Equivalences of the model that hold on the eager model and on the executor alike (the letters are the spec's)."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dsv41c.compiler.driver import compile_checkpoint
from dsv41c.compiler.eager import EagerModel, request_rows
from dsv41c.compiler.options import CompileOptions
from laws.engines import Engine, Subject
from laws.schedules import Workload, run_workload
from oracle import quantizers

TOKENS = tuple(int(t) for t in np.random.default_rng(11).integers(0, 96, 45))
OPTIONS = {"dtype": "float32", "quantizers": "off", "max_model_len": 64, "max_num_seqs": 48,
           "max_num_batched_tokens": 64, "block_size": 4}


@pytest.fixture(scope="module")
def subject(tiny_checkpoint: Path, compiled_artifact: Callable[..., Path]) -> Subject:
    return Subject.build(tiny_checkpoint, compiled_artifact("tiny", 0, **OPTIONS), CompileOptions(**OPTIONS))


@pytest.fixture(params=["torch", "bucketed", "exact"])
def engine(request: pytest.FixtureRequest, subject: Subject) -> Engine:
    return subject.torch_engine() if request.param == "torch" else subject.executor(request.param)


def chunked(engine: Engine, subject: Subject, cuts: tuple[int, ...], slot: int):
    sizes = np.diff([0, *cuts, len(TOKENS)])
    workload = Workload((TOKENS,), (slot,), tuple(((0, int(n)),) for n in sizes))
    names = (*(f"window_{layer}" for layer in range(8)), "pair_1", "pair_3", "token_ring", "slot_position",
             *(f"{kind}_{layer}" for kind in ("compressed", "index_key") for layer in (1, 3, 4)))
    return run_workload(engine, workload, 4, subject.options.pages_per_slot, names)


@pytest.mark.parametrize("cuts", [(7, 20, 33), (1, 2, 3, 44), (44,), (9, 18, 27, 36), tuple(range(1, 45))])
def test_a_b_chunked_and_token_by_token_equal_one_shot(engine: Engine, subject: Subject,
                                                       cuts: tuple[int, ...]) -> None:
    """A and B: any cuts, odd ones through a pair and chunks longer than the ring too, give the same rows and caches."""
    whole, parts = chunked(engine, subject, (), 0), chunked(engine, subject, cuts, 7)
    assert whole.logits == parts.logits
    assert whole.state == parts.state


def test_f_candidates_that_cover_everything_change_nothing(engine_kind: str, tiny_checkpoint: Path,
                                                           tmp_path: Path) -> None:
    """F: with room for every block, the reindex layers select as if there were no candidates at all."""
    covering = tmp_path / "covering"
    shutil.copytree(tiny_checkpoint, covering)
    config = json.loads((covering / "config.json").read_text())
    config["text_config"]["candidate_topk_blocks"] = 64
    (covering / "config.json").write_text(json.dumps(config))
    compile_checkpoint(covering, tmp_path / "art", CompileOptions(**OPTIONS), lambda _: None)
    subject = Subject.build(covering, tmp_path / "art", CompileOptions(**OPTIONS))
    no_source = dataclasses.replace(subject.view.config, candidate_source_layer_id=-1)
    from laws.engines import TorchEngine

    unrestricted = TorchEngine(EagerModel(no_source, subject.options, subject.weights))
    engine = subject.torch_engine() if engine_kind == "torch" else subject.executor(engine_kind)
    assert chunked(engine, subject, (20,), 0).logits == chunked(unrestricted, subject, (20,), 0).logits
    limited = Subject.build(tiny_checkpoint, tmp_path / "art", CompileOptions(**OPTIONS)).torch_engine()
    assert chunked(limited, subject, (20,), 0).logits != chunked(unrestricted, subject, (20,), 0).logits


@pytest.fixture(params=["torch", "bucketed"])
def engine_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class _Mixes(TorchDispatchMode):
    """Collects the outputs of every mhc_mix."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[torch.Tensor, ...]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        result = func(*args, **(kwargs or {}))
        if func is torch.ops.dsv41c.mhc_mix.default:
            self.found.append(result)
        return result


def test_g_mix_matrices_are_column_stochastic(subject: Subject) -> None:
    """G: gamma's columns sum to 1 within 1e-5, entries are >= 0, alpha in (1e-6, 1+1e-6), beta in (0, 2).

    The executor launches the same native body on the same bits (bit laws), so these are its mixes too.
    """
    model = subject.torch_engine().model
    with _Mixes() as mixes:
        model.step(request_rows(0, TOKENS, 0, subject.options))
    assert len(mixes.found) == 16
    for alpha, beta, gamma in mixes.found:
        assert (gamma.sum(dim=1) - 1).abs().max() <= 1e-5 and gamma.min() >= 0
        assert alpha.min() > 1e-6 and alpha.max() <= 1 + 1e-6 and beta.min() > 0 and beta.max() < 2


@pytest.mark.parametrize("kind", ["torch", "bucketed"])
def test_k_stored_values_are_fixed_points_of_their_quantizers(kind: str, tiny_checkpoint: Path,
                                                              compiled_artifact: Callable[..., Path]) -> None:
    """K: what the caches hold is on the grid of its format: quantising it again changes nothing."""
    options = OPTIONS | {"quantizers": "fake"}
    subject = Subject.build(tiny_checkpoint, compiled_artifact("tiny", 0, **options), CompileOptions(**options))
    engine = subject.torch_engine() if kind == "torch" else subject.executor(kind)
    chunked(engine, subject, (20,), 0)
    pages = slice(0, subject.options.pages_per_slot)
    for name, quantize, rows in [("window_3", quantizers.quantize_fp8, engine.state("window_3")[0]),
                                 ("index_key_3", quantizers.quantize_fp4_index, engine.state("index_key_3")[pages])]:
        values = rows.astype(np.float64)
        assert np.abs(values).max() > 0, name
        np.testing.assert_array_equal(quantize(values), values, err_msg=name)
