"""The command line: start-up cost, exit codes, streams, and the shape of what --json prints."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.unit.tools.command_line import dsv41c, heed_interrupts

HEAVY = ("torch", "numpy", "safetensors", "tokenizers", "rich")


@pytest.fixture(scope="module")
def artifact(compiled_artifact: Callable[..., Path]) -> Path:
    return compiled_artifact("tiny", 0, max_model_len=64, block_size=16, max_num_seqs=4, max_num_batched_tokens=24)


@pytest.fixture(scope="module")
def demo_artifact(compiled_artifact: Callable[..., Path]) -> Path:
    return compiled_artifact("demo", 0, recite="Hello brave new world", max_model_len=64, block_size=16,
                             max_num_seqs=4, max_num_batched_tokens=24)


# --- start-up ---------------------------------------------


def test_help_is_fast() -> None:
    """Under half a second; the best of five, because other tests may run beside it."""
    def once() -> float:
        start = time.perf_counter()
        assert dsv41c("--help").code == 0
        return time.perf_counter() - start

    assert min(once() for _ in range(5)) < 0.5


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["run", "--help"], ["compile", "--help"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    code = ("import sys\nfrom dsv41c.tools.cli.main import run\n"
            f"code = run({arguments!r})\n"
            f"print(*(m for m in {HEAVY!r} if m in sys.modules), file=sys.stderr)\nsys.exit(code)")
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert process.returncode == 0
    assert process.stderr.split() == []


def test_version() -> None:
    from dsv41c import __version__

    assert dsv41c("--version").out == f"dsv41c {__version__}\n"


def test_every_command_has_help() -> None:
    groups = (["checkpoint", "make"], ["checkpoint", "inspect"], ["bench", "step"],
              *(["passes", word] for word in ("list", "show", "run")))
    alone = ("compile", "run", "inspect", "explain", "check", "bisect", "diff", "doctor")
    for command in (*groups, *([name] for name in alone)):
        assert dsv41c(*command, "--help").code == 0


# --- exit codes ---------------------------------------------


@pytest.mark.parametrize("arguments", [
    ["--nope"], ["nope"], ["run", "--nope", "x"], ["compile", "x"], ["run"], ["run", "x", "--seed", "one"],
    ["checkpoint", "make", "--config", "large", "-o", "x"], ["bench", "step", "--repeat", "0"],
])
def test_usage_errors_are_2(arguments: list[str]) -> None:
    ended = dsv41c(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert "Traceback" not in ended.err


def test_a_missing_checkpoint_is_3(tmp_path: Path) -> None:
    ended = dsv41c("compile", tmp_path / "none", "-o", tmp_path / "art")
    assert ended.code == 3
    assert ended.err.startswith("DSV41C-E0101")
    assert list(tmp_path.iterdir()) == []


def test_a_bad_compile_option_is_2(tiny_checkpoint: Path, tmp_path: Path) -> None:
    ended = dsv41c("compile", tiny_checkpoint, "-o", tmp_path / "art", "--dtype", "float16")
    assert ended.code == 2
    assert "DSV41C-E0901 option --dtype" in ended.err
    assert "float32, bfloat16" in ended.err


def test_an_output_that_exists_is_2(tiny_checkpoint: Path, artifact: Path) -> None:
    assert dsv41c("compile", tiny_checkpoint, "-o", artifact).code == 2


@pytest.mark.parametrize("command", [["inspect"], ["run", "--prompt-ids", "1"]])
def test_a_missing_artifact_is_5(command: list[str], tmp_path: Path) -> None:
    ended = dsv41c(*command, tmp_path / "none")
    assert ended.code == 5
    assert ended.err.startswith("DSV41C-E0601")


def test_an_error_with_json_leaves_stdout_empty(tmp_path: Path) -> None:
    import json

    ended = dsv41c("inspect", tmp_path / "none", "--json")
    assert (ended.code, ended.out) == (5, "")
    assert set(json.loads(ended.err)) == {"code", "subject", "where", "found", "needed", "do"}


def test_other_exceptions_are_70_and_interrupts_130(monkeypatch: pytest.MonkeyPatch,
                                                    capsys: pytest.CaptureFixture[str]) -> None:
    from dsv41c.tools.cli import main

    def ends_with(error: BaseException, *arguments: str) -> tuple[int, str]:
        def fail(_: list[str]) -> None:
            raise error

        monkeypatch.setattr(main, "app", fail)
        return main.run(list(arguments)), capsys.readouterr().err

    code, err = ends_with(ValueError("first line\nsecond"))
    assert code == 70
    assert "internal error: ValueError: first line\n" in err
    assert "Traceback" not in err
    code, err = ends_with(ValueError("x"), "-v")
    assert code == 70
    assert "Traceback" in err
    assert ends_with(MemoryError())[0] == 6
    assert ends_with(KeyboardInterrupt())[0] == 130


def test_ctrl_c_is_130_and_leaves_nothing(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """Pressed while weights are being written."""
    code = ("import os, signal\nfrom dsv41c.compiler import artifact\nfrom dsv41c.tools.cli import main\n"
            "artifact.save_file = lambda *_, **__: os.kill(os.getpid(), signal.SIGINT)\nmain.main()")
    process = subprocess.run([sys.executable, "-c", code, "compile", tiny_checkpoint, "-o", tmp_path / "art"],
                             capture_output=True, text=True, preexec_fn=heed_interrupts)
    assert process.returncode == 130, process.stderr
    assert list(tmp_path.iterdir()) == []


def test_every_exit_code_is_documented() -> None:
    from dsv41c.runtime.plan.errors import CODES

    text = (Path(__file__).parents[3] / "tools/docs/exit-codes.md").read_text()
    documented = {line.split("|")[1].strip() for line in text.splitlines() if line.startswith("|")}
    assert {str(entry.exit_code) for entry in CODES.values()} | {"0", "1", "4", "70", "130"} <= documented


# --- compile and inspect ---------------------------------------------


def test_plan_only_artifact_can_be_inspected_but_not_run(tiny_checkpoint: Path, tmp_path: Path) -> None:
    ended = dsv41c("compile", tiny_checkpoint, "-o", tmp_path / "art", "--plan-only", "--max-model-len", "64", "--json")
    assert ended.code == 0, ended.err
    assert ended.json["schema_version"] == 1
    assert ended.json["plan_only"] is True
    assert ended.json["options"]["max_model_len"] == 64
    assert {m["name"] for m in ended.json["methods"]} == {"decode", "encoder", "decoder", "head"}
    assert "plan only" in dsv41c("inspect", tmp_path / "art").out
    refused = dsv41c("run", tmp_path / "art", "--prompt-ids", "1")
    assert refused.code == 5
    assert "DSV41C-E0603" in refused.err


def test_inspect_json(artifact: Path) -> None:
    summary = dsv41c("inspect", artifact, "--json").json
    assert summary["schema_version"] == 1
    assert summary["manifest"]["options"]["max_model_len"] == 64
    assert summary["memory"]["total_bytes"] == sum(v for k, v in summary["memory"].items() if k != "total_bytes")
    decode = next(m for m in summary["methods"] if m["name"] == "decode")
    assert decode["buckets"] == [1, 2, 3, 4]
    assert set(decode["launches"]) == {"composite", "native", "sequence"}
    assert summary["weights"]["bytes"] > 0
    assert "plan.json" in summary["files"]


def test_inspect_text_names_every_method(artifact: Path) -> None:
    text = dsv41c("inspect", artifact).out
    assert all(f"method    {name}:" in text for name in ("decode", "encoder", "decoder", "head"))


# --- run ---------------------------------------------


def test_run_json(artifact: Path) -> None:
    ended = dsv41c("run", artifact, "--prompt-ids", "5, 6,7", "--max-new-tokens", "4", "--ignore-eos", "--json")
    assert ended.code == 0, ended.err
    assert set(ended.json) == {"schema_version", "requests", "steps", "load", "speculation"}
    (request,) = ended.json["requests"]
    assert request["prompt_ids"] == [5, 6, 7]
    assert len(request["tokens"]) == 4
    assert (request["text"], request["finish_reason"]) == (None, "length")
    first = ended.json["steps"][0]
    assert set(first) == {"method", "bucket", "rows", "pad_rows", "mode", "reason", "us"}
    assert (first["method"], first["bucket"], first["rows"], first["mode"]) == ("encoder", 3, 3, "bucketed")
    assert [s["method"] for s in ended.json["steps"]] == ["encoder", "decoder", "head"] + ["decode"] * 3
    load = ended.json["load"]
    assert load["planned_bytes"] == load["reserved_bytes"]
    assert set(load) == {"planned_bytes", "reserved_bytes", "seconds"}


def test_run_without_json_prints_ids_and_a_summary(artifact: Path) -> None:
    ended = dsv41c("run", artifact, "--prompt-ids", "5", "--max-new-tokens", "3", "--ignore-eos")
    assert len(ended.out.strip().split(",")) == 3
    assert "1 requests, 3 tokens" in ended.err
    assert "decode@1 x3" in ended.err  # a prompt of one id is a decode step too


def test_eager_says_so(artifact: Path) -> None:
    ended = dsv41c("run", artifact, "--prompt-ids", "5", "--max-new-tokens", "2", "--eager", "--json")
    assert {s["mode"] for s in ended.json["steps"]} == {"eager"}


def test_dump_logits(artifact: Path, tmp_path: Path) -> None:
    lines = tmp_path / "prompts.jsonl"
    lines.write_text('[1, 2, 3]\n\n{"prompt_ids": [4], "max_new_tokens": 2, "seed": 3, "temperature": 0.5}\n')
    ended = dsv41c("run", artifact, "--prompts-file", lines, "--max-new-tokens", "5", "--ignore-eos",
                   "--dump-logits", tmp_path / "logits.npz", "--json")
    assert ended.code == 0, ended.err
    first, second = ended.json["requests"]
    with np.load(tmp_path / "logits.npz") as arrays:
        assert set(arrays) == {"r0", "r1"}
        assert arrays["r0"].dtype == np.float32
        assert arrays["r0"].shape == (5, 96)
        assert arrays["r0"].argmax(1).tolist() == first["tokens"]
        assert arrays["r1"].shape == (len(second["tokens"]), 96) == (2, 96)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["logits.npz", "prompts.jsonl"]


def test_logits_that_cannot_be_written_are_6(artifact: Path, tmp_path: Path) -> None:
    ended = dsv41c("run", artifact, "--prompt-ids", "5", "--dump-logits", tmp_path / "none" / "x.npz")
    assert ended.code == 6
    assert "DSV41C-E0606" in ended.err


@pytest.mark.parametrize(("arguments", "words"), [
    ([], "0 of --prompt"),
    (["--prompt", "x", "--prompt-ids", "1"], "2 of --prompt"),
    (["--prompt", "x"], "--prompt-ids 1,2,3"),
    (["--prompt-ids", "1,x"], "index 1"),
    (["--prompt-ids", "1,,2"], "index 1"),
    (["--prompt-ids", ""], "index 0"),
    (["--prompt-ids", "-1"], "0..95"),
    (["--prompt-ids", "5,96"], "index 1"),
    (["--prompts-file", "/nowhere"], "No such file"),
    (["--prompt-ids", ",".join(["1"] * 64)], "max_model_len 64"),
])
def test_a_bad_prompt_is_2(arguments: list[str], words: str, artifact: Path) -> None:
    ended = dsv41c("run", artifact, *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("DSV41C-E0902")
    assert words in ended.err


@pytest.mark.parametrize(("line", "words"), [
    ("{", "prompts.jsonl:2"), ("7", "a JSON int"), ('{"prompt_ids": [1], "top_k": 3}', "key top_k"),
    ("{}", "keys none"), ('{"prompt_ids": "1"}', "a JSON str"), ('{"prompt": [1]}', "a JSON list"),
    ('{"prompt_ids": [1], "prompt": "x"}', "exactly one"), ('"text"', "--prompt-ids 1,2,3"), ("[1.5]", "1.5"),
    ("[]", "no token ids"), ('{"prompt_ids": [1], "_": 1}', "key _"),
])
def test_a_bad_line_is_2(line: str, words: str, artifact: Path, tmp_path: Path) -> None:
    lines = tmp_path / "prompts.jsonl"
    lines.write_text(f"[1]\n{line}\n")
    ended = dsv41c("run", artifact, "--prompts-file", lines)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("DSV41C-E0902")
    assert words in ended.err


def test_demo_recites_its_text(demo_artifact: Path) -> None:
    ended = dsv41c("run", demo_artifact, "--prompt", "Speak\n")
    assert ended.out == "Hello brave new world\n", ended.err
    ended = dsv41c("run", demo_artifact, "--prompt", "Speak\n", "--json")
    (request,) = ended.json["requests"]
    assert (request["text"], request["finish_reason"]) == ("Hello brave new world", "stop")
    assert request["tokens"][-1] == 1


