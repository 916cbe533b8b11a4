"""`dsv41c plan` and the budgets of `compile`: sizes as text, answers, and refusals with the nearest legal value."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.tools.cli.byte_size import UNITS, parse_bytes
from dsv41c.tools.cli.plan_question import Question, parse_tiers
from dsv41c.tools.cli.plan_result import compile_arguments
from tests.damage.command import Command, check_refusal

SIZES = ("--max-num-seqs", "4", "--block-size", "16")


# --- sizes and lists as text ------------------------------


@given(st.integers(1, 2**20), st.sampled_from(sorted(UNITS)))
def test_a_size_is_a_number_and_a_unit(number: int, unit: str) -> None:
    assert parse_bytes("--budget", f"{number}{unit}") == number * UNITS[unit]


@pytest.mark.parametrize(("text", "nearest"), [
    ("0", "1"), ("0GiB", "1"), ("-1", "1"), ("-8GiB", "1"), ("8GB", "8GiB"), ("8 gib", "8GiB"), ("512m", "512MiB"),
    ("5KB", "5KiB"), ("", "8GiB, 512MiB or 123456"), ("much", "8GiB, 512MiB or 123456"),
    ("1.5GiB", "1"), ("9999999999TiB", str(2**62)), ("12 bananas", "12"),
])
def test_another_size_names_the_nearest(text: str, nearest: str) -> None:
    with pytest.raises(Dsv41cError, match="DSV41C-E0901") as caught:
        parse_bytes("--budget", text)
    assert caught.value.subject == "option --budget" and caught.value.do == f"the nearest legal value is {nearest}"


def test_tiers_are_numbers() -> None:
    assert parse_tiers("8192, 65536") == (8192, 65536)
    for text in ("", "8k", "1,,2", "1.5"):
        with pytest.raises(Dsv41cError, match="DSV41C-E0901"):
            parse_tiers(text)


# --- the command ------------------------------------------


@pytest.fixture
def fused_once(monkeypatch: pytest.MonkeyPatch, planner_of: Callable[..., Any]) -> None:
    """Capture and passes of tiny once for all tests here; everything else is the command's own."""
    monkeypatch.setattr("dsv41c.compiler.driver.fuse", planner_of)


@pytest.fixture(scope="module")
def planner_of(tiny_checkpoint: Path) -> Callable[..., Any]:
    from dataclasses import replace

    from dsv41c.compiler.checkpoint.view import CheckpointView
    from dsv41c.compiler.driver import fuse
    from dsv41c.compiler.options import CompileOptions

    fused = fuse(CheckpointView.open(tiny_checkpoint), CompileOptions(max_num_seqs=4, block_size=16), lambda _: None)
    return lambda view, options, progress: replace(fused, view=view, options=options.resolved(view.config))


def test_json_adds_up(tiny_checkpoint: Path, command: Command, fused_once: None) -> None:
    result = command("plan", tiny_checkpoint, *SIZES, "--max-model-len", "64", "--json").json
    assert sum(result["classes"].values()) == result["total_bytes"] == result["reserved_bytes"]
    assert result["memory"]["total_bytes"] == result["total_bytes"]
    assert sum(result["classes"][name] for name in ("pages", "rings", "pairs", "slots", "page_table", "other_state")) \
        == result["memory"]["state_bytes"]
    assert result["classes"]["other_state"] == 0  # every state tensor has a class
    assert max(m["arena_bytes"] for m in result["methods"]) == result["classes"]["arena"]
    assert (result["budget_bytes"], result["tiers"]) == (None, [])


def test_text_names_every_method_and_the_options(tiny_checkpoint: Path, command: Command, fused_once: None) -> None:
    text = command("plan", tiny_checkpoint, *SIZES, "--max-model-len", "64").out
    assert all(f"method    {name}:" in text for name in ("decode", "encoder", "decoder", "head"))
    assert "dsv41c compile --max-model-len 64 --max-num-seqs 4 --max-num-batched-tokens 512 --block-size 16" in text
    assert "not part of the total" in text


def test_tiers_are_totals_with_the_chosen_buckets(tiny_checkpoint: Path, command: Command, fused_once: None) -> None:
    """On a GPU the budget drops buckets; the table does not count them either."""
    sizes = ("--max-num-seqs", "4", "--block-size", "16", "--target", "sm_90a", "--max-num-batched-tokens", "64")
    chosen = command("plan", tiny_checkpoint, *sizes, "--context-tiers", "64,128", "--budget", "6400000", "--json").json
    totals = {t["max_model_len"]: t["total_bytes"] for t in chosen["tiers"]}
    assert "--buckets" in chosen["compile"]
    assert totals[128] == chosen["total_bytes"] <= 6_400_000 and totals[64] < totals[128]


def test_a_budget_chooses_what_fits(tiny_checkpoint: Path, command: Command, fused_once: None) -> None:
    """The chosen options, planned without a budget, take what was said; tiers are listed with their totals."""
    tiers = ("--context-tiers", "64,1024,4096")
    chosen = command("plan", tiny_checkpoint, *SIZES, *tiers, "--budget", "3MiB", "--json").json
    assert chosen["total_bytes"] <= 3 << 20 and chosen["cost_ns"] > 0
    again = command("plan", tiny_checkpoint, *chosen["compile"], "--json").json
    assert again["total_bytes"] == chosen["total_bytes"] and again["options"] == chosen["options"]
    totals = {t["max_model_len"]: t["total_bytes"] for t in chosen["tiers"]}
    assert list(totals) == [64, 1024, 4096] and totals[chosen["options"]["max_model_len"]] == chosen["total_bytes"]
    exact = command("plan", tiny_checkpoint, *chosen["compile"], "--budget", str(chosen["total_bytes"]), "--json")
    assert exact.code == 0
    ended = command("plan", tiny_checkpoint, *chosen["compile"], "--budget", str(chosen["total_bytes"] - 1))
    check_refusal(ended, "E0405", "1 too many", f"at least {chosen['total_bytes']} bytes")


def test_the_least_tier_that_covers_the_need(tiny_checkpoint: Path, command: Command, fused_once: None) -> None:
    arguments = ("plan", tiny_checkpoint, *SIZES, "--context-tiers", "64,1024,4096", "--json", "--max-model-len")
    for need, tier in (("64", 64), ("65", 1024), ("2000", 4096)):
        assert command(*arguments, need).json["options"]["max_model_len"] == tier


@pytest.mark.parametrize(("arguments", "words"), [
    (("--budget", "0"), ("--budget", "nearest legal value is 1")),
    (("--budget=-5",), ("--budget", "nearest legal value is 1")),
    (("--budget", "lots"), ("--budget", "8GiB")),
    (("--context-tiers", "64,64"), ("--context-tiers", "nearest legal value is 65")),
    (("--context-tiers", "64,32"), ("--context-tiers", "nearest legal value is 65")),
    (("--context-tiers", "64,9000"), ("--context-tiers", "nearest legal value is 4096")),
    (("--context-tiers", "64,128", "--max-model-len", "200"), ("--context-tiers", "nearest legal value is 200")),
    (("--target", "sm_80"), ("--target",)),
    (("--max-num-batched-tokens", "2"), ("--max-num-batched-tokens",)),
])
def test_bad_options_end_with_2(tiny_checkpoint: Path, command: Command, arguments: tuple[str, ...],
                                words: tuple[str, ...]) -> None:
    check_refusal(command("plan", tiny_checkpoint, *SIZES, *arguments), "E0901", *words)


def test_row_bounds_start_at_the_requests() -> None:
    from dsv41c.compiler.options import CompileOptions

    def bounds(seqs: int, rows: int | None, budget: int | None) -> tuple[int, ...]:
        return Question(CompileOptions(max_num_seqs=seqs), rows, budget, None).row_bounds()

    assert bounds(16, None, None) == (512,) and bounds(600, None, None) == (600,)
    assert bounds(16, 77, 1) == (77,)
    assert bounds(1000, None, 1) == (1024, 2048, 4096, 8192) and bounds(9000, None, 1) == (9000,)


def test_dropped_rungs_become_options() -> None:
    from dsv41c.compiler.options import CompileOptions

    options = CompileOptions(max_model_len=64, fallback=("rotary",), without=("mega_mhc",), target="sm_90a")
    arguments = compile_arguments(options, {"decode": (1, 2), "head": (1,)})
    assert arguments[-10:] == ["--fallback", "rotary", "--without", "mega_mhc", "--bucket-policy", "explicit",
                               "--buckets", "decode=1,2", "--buckets", "head=1"]


def test_every_option_that_differs_is_printed() -> None:
    """All of CompileOptions but what a plan does not depend on; the file of measured sizes is the command's own."""
    import dataclasses

    from dsv41c.compiler.options import CompileOptions

    changed: dict[str, Any] = {
        "max_model_len": 64, "max_num_seqs": 4, "max_num_batched_tokens": 24, "block_size": 16, "dtype": "float32",
        "quantizers": "off", "target": "sm_90a", "fallback": ("rotary", "linear"), "without": ("mega_mhc",),
        "breaks": ("linear",), "suffix_mode": "compact", "suffix_keep_tokens": 20, "full_decoder_rows": 7,
        "bucket_policy": "step", "bucket_step": 8, "buckets": ("decode=1",), "max_graphs": 40, "max_eager_rows": 16,
        "draft_len": 2, "kv_cache_dtype": "packed", "batch_invariant": "off",
    }
    assert {field.name for field in dataclasses.fields(CompileOptions)} - set(changed) == {
        "plan_only", "weights", "histogram"}
    arguments = compile_arguments(CompileOptions(**changed), {})
    for name, value in changed.items():
        option = {"breaks": "--break"}.get(name, f"--{name.replace('_', '-')}")
        printed = [after for word, after in zip(arguments, arguments[1:], strict=False) if word == option]
        assert printed == (list(value) if isinstance(value, tuple) else [str(value)]), name


@pytest.mark.parametrize("arguments", [
    ("--suffix-mode", "compact", "--suffix-keep-tokens", "20", "--break", "linear", "--max-graphs", "30"),
    ("--bucket-policy", "histogram", "--break", "mega_moe"),
    ("--bucket-policy", "explicit", "--buckets", "encoder=1,3", "--max-eager-rows", "5"),
    ("--bucket-policy", "explicit", "--buckets", "decode=1,3", "--without", "mega_moe"),
    ("--draft-len", "2"),
])
def test_the_printed_command_plans_the_same(tiny_checkpoint: Path, tmp_path: Path, command: Command,
                                            arguments: tuple[str, ...]) -> None:
    if "histogram" in arguments:
        (tmp_path / "sizes of steps.json").write_text('{"decode": {"1": 10, "3": 7}}')
        arguments = (*arguments, "--histogram", str(tmp_path / "sizes of steps.json"))
    planned = command("plan", tiny_checkpoint, *SIZES, "--max-model-len", "64", *arguments, "--json").json
    compiled = command("compile", tiny_checkpoint, "-o", tmp_path / "art", "--plan-only", *planned["compile"],
                       "--json").json
    assert compiled["memory"]["total_bytes"] == planned["total_bytes"]
    assert compiled["options"] == planned["options"]
    assert [m["buckets"] for m in compiled["methods"]] == [m["buckets"] for m in planned["methods"]]


def test_a_budget_and_a_policy_are_two_choices(tmp_path: Path, command: Command) -> None:
    ended = command("plan", tmp_path, "--budget", "1GiB", "--bucket-policy", "step")
    check_refusal(ended, "E0901", "--bucket-policy", "step with --budget")


def test_a_histogram_is_the_workload_of_a_budget(tiny_checkpoint: Path, tmp_path: Path, command: Command,
                                                 fused_once: None) -> None:
    """Twice as many steps cost twice as much; sizes above the bound are cut, not refused."""
    costs = []
    for count in (1, 2):
        path = tmp_path / f"{count}.json"
        path.write_text(json.dumps({"decode": {"1": 3 * count}, "encoder": {"100000": count}}))
        costs.append(command("plan", tiny_checkpoint, *SIZES, "--max-model-len", "64", "--budget", "1GiB",
                             "--histogram", path, "--json").json["cost_ns"])
    assert 0 < costs[0] == costs[1] / 2
    bad = tmp_path / "bad.json"
    bad.write_text('{"decoed": {"1": 1}}')
    check_refusal(command("plan", tiny_checkpoint, "--histogram", bad), "E0901", str(bad), "did you mean decode?")


# --- compile ----------------------------------------------


def test_compile_refuses_before_it_writes(tiny_checkpoint: Path, tmp_path: Path, command: Command) -> None:
    small = ("--max-model-len", "64", *SIZES, "--max-num-batched-tokens", "24", "--plan-only")
    ended = command("compile", tiny_checkpoint, "-o", tmp_path / "art", *small, "--budget", "1000")
    check_refusal(ended, "E0405", "too many; the largest class is", "--max-model-len 64")
    assert not list(tmp_path.iterdir())
    needed = int(ended.err.split("a budget of at least ")[1].split()[0])
    result = command("compile", tiny_checkpoint, "-o", tmp_path / "art", *small, "--budget", str(needed), "--json").json
    assert result["memory"]["total_bytes"] == needed
    assert json.loads((tmp_path / "art/plan.json").read_text())["memory"]["total_bytes"] == needed


def test_compile_refuses_a_bad_budget_at_once(tmp_path: Path, command: Command) -> None:
    check_refusal(command("compile", tmp_path, "-o", tmp_path / "art", "--budget", "0"), "E0901", "--budget")
