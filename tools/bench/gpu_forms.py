"""Forced breaks, a bounded suffix, a split decoder on a GPU: a counter checkpoint's tokens, in graphs and without."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

NEW_TOKENS = 20
SIZES = {"max_model_len": 128, "block_size": 8, "max_num_seqs": 4, "max_num_batched_tokens": 96}
SPLIT = {"bucket_policy": "explicit", "buckets": ("decoder=1,2,3,9",)}
FORMS: dict[str, dict[str, Any]] = {
    "split": {**SIZES, **SPLIT},
    "all": {**SIZES, **SPLIT, "suffix_mode": "compact", "suffix_keep_tokens": 20, "breaks": ("linear",)},
}


def check_form(artifact: Path) -> dict[str, Any]:
    """Ragged requests that join one after another: every token is right, and graphs give the launches' bits."""
    from dsv41c.runtime.generate import generate
    from dsv41c.runtime.limits import Limits
    from dsv41c.runtime.load import load
    from dsv41c.runtime.requests import Request

    limits, rng = Limits.read(artifact), np.random.default_rng(0)
    prompts = [[int(t) for t in rng.integers(0, 90, n)] for n in (1, 7, 8, 20, 21, 33, 60, 95, 100)]
    requests = [Request(p, NEW_TOKENS, ignore_eos=True, arrival_step=i) for i, p in enumerate(prompts)]
    expected = [tuple((p[-1] + 1 + i) % limits.vocab_size for i in range(NEW_TOKENS)) for p in prompts]
    logits, right, steps = [], [], Counter[str]()
    for mode in ("graphs", "eager"):
        with load(artifact, cuda_mode=mode) as runtime:  # type: ignore[arg-type]
            done = generate(runtime, limits, requests, keep_logits=True)
            steps.update(f"{r.method}: {r.reason}" for r in runtime.records() if mode == "graphs")
            methods = runtime.report()["methods"]
        right.append(sum(tuple(d.tokens) == e for d, e in zip(done, expected, strict=True)))
        logits.append([d.logits.tobytes() for d in done if d.logits is not None])
    same = logits[0] == logits[1] and len(logits[0]) == len(prompts)
    return {"ok": same and right == [len(prompts)] * 2, "right": right, "of": len(prompts), "same_bits": same,
            "breaks": {name: m["breaks"] for name, m in methods.items()}, "steps": dict(steps.most_common(8))}
