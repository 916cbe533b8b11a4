"""The conformance vectors and the hosts that answer them: eager model in Python, the Python package, a C program."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dsv41c.compiler.checkpoint.view import CheckpointView
from dsv41c.compiler.eager import EagerModel, request_rows
from dsv41c.compiler.options import CompileOptions
from dsv41c.compiler.weights import load_weights, weight_recipes
from dsv41c.runtime.limits import Limits
from dsv41c.runtime.load import load
from dsv41c.runtime.sampling import draw_token, log_probabilities
from dsv41c.runtime.sampling_params import SamplingParams

REQUESTS: list[dict[str, Any]] = json.loads(Path(__file__).with_name("vectors.json").read_text())["requests"]
# Fewer rows in a step than the requests have, so that prompts are cut into chunks; slots for all of them.
OPTIONS = {"max_model_len": 128, "block_size": 16, "max_num_seqs": 32, "max_num_batched_tokens": 64}
_FINISH = ("", "stop", "length", "cancel", "error", "deadline")


@dataclass(frozen=True)
class Outcome:
    """Log-probabilities as the bits of float32; `top` as (id, bits), likeliest first."""

    tokens: tuple[int, ...]
    finish_reason: str
    logprobs: tuple[int, ...]
    top: tuple[tuple[tuple[int, int], ...], ...]


def params_of(request: dict[str, Any]) -> SamplingParams:
    return SamplingParams(**{name: value for name, value in request.items() if name != "prompt"})


class Reference:
    """One request at a time on the eager model, sampled by runtime/sampling.py."""

    def __init__(self, checkpoint: Path, artifact: Path, **options: Any) -> None:
        view = CheckpointView.open(checkpoint)
        self.options = CompileOptions(**options).resolved(view.config)
        self.model = EagerModel(view.config, self.options, load_weights(view, weight_recipes(view, self.options)))
        self.limits = Limits.read(artifact)

    def answer(self, request: dict[str, Any]) -> Outcome:
        prompt, params = request["prompt"], params_of(request)
        ends = {*params.stop_ids, *(() if params.ignore_eos else self.limits.eos_ids)}
        tokens: list[int] = []
        logprobs: list[int] = []
        top: list[tuple[tuple[int, int], ...]] = []
        upload, finish = request_rows(0, prompt, 0, self.options), ""
        while not finish:
            rows, _ = self.model.step(upload, None, np.array([len(upload) - 1], dtype=np.int32))
            logits = rows[0].numpy().astype(np.float32)
            tokens.append(self._choose(logits, params, ends if len(tokens) < params.min_new_tokens else set(),
                                       len(prompt) + len(tokens)))
            if params.n_logprobs:
                values = log_probabilities(logits)
                bits = values.view(np.uint32)
                likeliest = np.argsort(-logits, kind="stable")[: params.n_logprobs]
                logprobs.append(int(bits[tokens[-1]]))
                top.append(tuple((int(i), int(bits[i])) for i in likeliest))
            full = len(prompt) + len(tokens) >= self.limits.max_model_len
            finish = ("stop" if tokens[-1] in ends else
                      "length" if full or len(tokens) >= params.max_new_tokens else "")
            upload = request_rows(0, tokens[-1:], len(prompt) + len(tokens) - 1, self.options)
        return Outcome(tuple(tokens), finish, tuple(logprobs), tuple(top))

    @staticmethod
    def _choose(logits: np.ndarray, params: SamplingParams, forbidden: set[int], position: int) -> int:
        allowed = logits.copy()
        allowed[[i for i in forbidden if i < len(logits)]] = -np.inf
        if params.temperature == 0:
            return int(allowed.argmax())
        return draw_token(allowed, params.temperature, params.top_p, params.seed, position, params.top_k)


def python_answers(artifact: Path, requests: Sequence[dict[str, Any]]) -> list[Outcome]:
    """All requests in one batch of the Python package."""
    with load(artifact) as runtime:
        answers = runtime.engine().generate([r["prompt"] for r in requests], [params_of(r) for r in requests])
    return [Outcome(a.tokens, a.finish_reason, tuple(_bits(a.logprobs)),
                    tuple(tuple((i, _bits([p])[0]) for i, p in row) for row in a.top_logprobs)) for a in answers]


def c_answers(client: Path, artifact: Path, requests: Sequence[dict[str, Any]], pages: int = 0) -> list[Outcome]:
    """All requests in one batch of tests/native/c_client.c, in a process without Python."""
    lines = "".join(_line(request) for request in requests)
    done = subprocess.run([str(client), str(artifact), str(pages)], input=lines, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [_outcome(line.split()) for line in done.stdout.splitlines()]


def _line(request: dict[str, Any]) -> str:
    params = params_of(request)
    fields = (params.max_new_tokens, params.min_new_tokens, params.temperature.hex(), params.top_p.hex(), params.top_k,
              params.seed, params.n_logprobs, int(params.ignore_eos), params.priority,
              ",".join(map(str, params.stop_ids)) or "-", ",".join(map(str, request["prompt"])))
    return " ".join(map(str, fields)) + "\n"


def _outcome(fields: list[str]) -> Outcome:
    finish, _, _, tokens, logprobs, top = ([] if f == "-" else f.split(",") for f in fields)
    pairs = [(int(pair.split(":")[0]), int(pair.split(":")[1], 16)) for pair in top]
    width = len(pairs) // len(tokens) if tokens else 0
    return Outcome(tuple(map(int, tokens)), _FINISH[int(finish[0])], tuple(int(p, 16) for p in logprobs),
                   tuple(tuple(pairs[i : i + width]) for i in range(0, len(pairs), width or 1)))


def _bits(values: Sequence[float]) -> list[int]:
    return np.array(values, dtype=np.float32).view(np.uint32).tolist()
