"""Options about buckets: every bad value names what is legal and the nearest legal value; good ones reach the plan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dsv41c.compiler.bounds import method_bounds
from dsv41c.compiler.bucket_policy import buckets_of
from dsv41c.compiler.checkpoint.presets import flash, tiny
from dsv41c.compiler.measured_sizes import read_histogram, words_of
from dsv41c.compiler.options import CompileOptions
from dsv41c.graphs.buckets import (
    MAX_GRAPHS,
    DefaultPolicy,
    ExplicitPolicy,
    HistogramPolicy,
    MethodBound,
    PowersPolicy,
    StepPolicy,
    choose_buckets,
)
from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.runtime.plan.format import BUCKET_POLICIES

BAD: dict[str, tuple[dict[str, Any], str, str]] = {
    "unknown policy": ({"bucket_policy": "power"}, "--bucket-policy", "did you mean powers?"),
    "unknown method": ({"buckets": ("decod=1,2",)}, "--buckets", "did you mean decode?"),
    "above the bound": ({"buckets": ("decode=1,2,17",)}, "--buckets decode", "write decode=1,2,16"),
    "below the bound": ({"buckets": ("decode=0,2",)}, "--buckets decode", "write decode=1,2"),
    "twice": ({"buckets": ("decode=1,2,2,4",)}, "--buckets decode", "write decode=1,2,4"),
    "not ascending": ({"buckets": ("decode=1,4,2",)}, "--buckets decode", "write decode=1,2,4"),
    "no number": ({"buckets": ("decode=1,two",)}, "--buckets", "correct the number"),
    "no buckets": ({"buckets": ("decode=",)}, "--buckets", "correct the number"),
    "no method": ({"buckets": ("1,2",)}, "--buckets", "write decode=1,2,3"),
    "method twice": ({"buckets": ("decode=1", "decode=2")}, "--buckets", "write decode once"),
    "explicit without buckets": ({"bucket_policy": "explicit"}, "--bucket-policy", "add --buckets"),
    "histogram without file": ({"bucket_policy": "histogram"}, "--bucket-policy", "add --histogram"),
    "step 0": ({"bucket_policy": "step", "bucket_step": 0}, "--bucket-step", "pass 1"),
    "step above the bound": ({"bucket_policy": "powers", "bucket_step": 513}, "--bucket-step", "pass 512"),
    "step of another policy": ({"bucket_step": 4}, "--bucket-step", "add --bucket-policy powers"),
    "buckets of another policy": ({"bucket_policy": "step", "buckets": ("decode=1",)}, "--buckets",
                                  "add --bucket-policy explicit"),
    "histogram of another policy": ({"bucket_policy": "default", "histogram": ("decode=1:1",)}, "--histogram",
                                    "add --bucket-policy histogram"),
    "too few graphs": ({"max_graphs": 15}, "--max-graphs", "pass 16"),
    "too many graphs": ({"max_graphs": 5000}, "--max-graphs", "pass 4096"),
    "size above the bound": ({"histogram": ("decode=1:4,17:1",)}, "--histogram decode",
                             "measure with the bounds that are compiled"),
    "draft without drafts": ({"buckets": ("draft=1",)}, "--buckets", "add --draft-len"),
    "measured draft without drafts": ({"histogram": ("draft=1:1",)}, "--histogram", "add --draft-len"),
    "draft above the slots": ({"draft_len": 2, "buckets": ("draft=1,17",)}, "--buckets draft", "write draft=1,16"),
    "negative count": ({"histogram": ("decode=1:-4",)}, "--histogram decode", "correct the file"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_options(name: str) -> None:
    values, option, do = BAD[name]
    policy = "explicit" if "buckets" in values else "histogram" if "histogram" in values else "default"
    with pytest.raises(Dsv41cError, match="DSV41C-E0901") as caught:
        CompileOptions(**{"bucket_policy": policy, **values}).resolved(tiny())
    assert (caught.value.subject, caught.value.do) == (f"option {option}", do)
    assert caught.value.found and caught.value.needed


def test_each_policy_is_the_one_that_was_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "sizes.json"
    path.write_text(json.dumps({"decode": {"7": 10, "2": 4}}))
    cases = {
        "default": ({}, DefaultPolicy()), "powers": ({"bucket_step": 32}, PowersPolicy(32)),
        "step": ({}, StepPolicy(128)),
        "explicit": ({"buckets": ("decode=1,5", "head=16")}, ExplicitPolicy({"decode": (1, 5), "head": (16,)})),
        "histogram": ({"histogram": words_of(read_histogram(path))}, HistogramPolicy({"decode": {2: 4, 7: 10}})),
    }
    assert set(cases) == set(BUCKET_POLICIES)
    for name, (values, policy) in cases.items():
        options = CompileOptions(bucket_policy=name, **values).resolved(tiny())  # type: ignore[arg-type]
        stored = CompileOptions.from_json(options.to_json())
        assert stored == options and all(isinstance(v, str | int) for v in options.to_json().values())
        assert buckets_of(stored).policy == policy


def test_the_published_model_has_at_most_48_graphs_by_default() -> None:
    options = CompileOptions().resolved(flash())
    axes = {"decode": "rows", "encoder": "rows", "decoder": "kept_rows", "head": "output_rows"}
    bounds = {name: MethodBound(axes[name], rows) for name, rows in method_bounds(options).items()}
    chosen = choose_buckets(buckets_of(options), bounds)
    assert sum(len(c.rungs) for c in chosen.values()) <= MAX_GRAPHS == options.max_graphs
