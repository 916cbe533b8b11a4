"""What fails ends the requests that it concerns, with an error that says why, and no others."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dsv41c.runtime.load import load
from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.runtime.sampling_params import SamplingParams
from tests.damage.shard import Tensor, change_shard, read_shard
from tests.native.faulty_kernels import FaultyKernels
from tests.unit.runtime.engine.conftest import OPTIONS, prompt_of

POISONED = 50  # a token whose embedding is not a number
SETTINGS = SamplingParams(max_new_tokens=6, ignore_eos=True, n_logprobs=1, stop_ids=[POISONED])


@pytest.fixture(scope="module")
def poisoned_artifact(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from dsv41c.compiler.driver import compile_checkpoint
    from dsv41c.compiler.options import CompileOptions

    checkpoint = tmp_path_factory.mktemp("poisoned") / "ckpt"
    shutil.copytree(tiny_checkpoint, checkpoint)
    for shard in checkpoint.glob("*.safetensors"):
        if "embed.weight" in read_shard(shard):
            change_shard(shard, lambda tensors: _spoil(tensors["embed.weight"]))
    compile_checkpoint(checkpoint, checkpoint.with_name("art"), CompileOptions(**OPTIONS), lambda _: None)
    return checkpoint.with_name("art")


def _spoil(tensor: Tensor) -> None:
    assert tensor.dtype == "BF16"
    width = tensor.shape[1]
    data = bytearray(tensor.data)
    data[2 * width * POISONED : 2 * width * (POISONED + 1)] = b"\xc0\x7f" * width
    tensor.data = bytes(data)


def test_logits_that_are_not_finite_end_that_request_only(poisoned_artifact: Path) -> None:
    prompts = [[i for i in prompt_of(9 + i, i) if i != POISONED] for i in range(12)]
    with load(poisoned_artifact) as runtime:
        alone = [runtime.engine().generate([prompt], SETTINGS)[0] for prompt in prompts]
        bad = [*prompt_of(12), POISONED]
        together = runtime.engine().generate([*prompts[:5], bad, *prompts[5:], bad], SETTINGS)
        stats = runtime.engine().stats()
    for failed in (together[5], together[-1]):
        assert failed.finish_reason == "error" and failed.error is not None and failed.tokens == ()
        assert failed.error.code == "DSV41C-E1006" and "nan" in failed.error.found
    others = together[:5] + together[6:-1]
    assert [(a.tokens, a.logprobs) for a in others] == [(a.tokens, a.logprobs) for a in alone]
    assert (stats["requests_failed"], stats["kv_pages_used"], stats["slots_used"]) == (2, 0, 0)


def test_a_step_that_fails_ends_the_service(compiled_artifact: Callable[..., Path], tmp_path: Path) -> None:
    """Every request hears of it, waiting ones too, and later ones are refused with the same error."""
    kernels = FaultyKernels.build(tmp_path)
    with kernels.open(compiled_artifact("tiny", 0, **OPTIONS), "full") as runtime:
        engine = runtime.engine(max_batch=2)
        engine.check_ready()
        kernels.set("write_input", "linear")
        engine.pause()
        generations = [engine.submit(prompt_of(9, i), SETTINGS) for i in range(4)]
        engine.pause(False)
        for generation in generations:
            error = generation.wait(60).error
            assert error is not None and error.code == "DSV41C-E0805"
        for call in (engine.check_ready, lambda: engine.submit([1], SETTINGS)):
            with pytest.raises(Dsv41cError, match="E0805"):
                call()
        stats = engine.stats()
        assert (stats["requests_failed"], stats["kv_pages_used"], stats["slots_used"]) == (4, 0, 0)
