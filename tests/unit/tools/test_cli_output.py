"""Output that cannot be written, text that is no UTF-8, mistakes in numbers: no traceback, the right exit code."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SMALL = {"max_model_len": 64, "max_num_seqs": 4, "max_num_batched_tokens": 16}
COMMAND = [sys.executable, "-m", "dsv41c.tools.cli.main"]


@pytest.fixture(scope="module")
def artifact(compiled_artifact: Callable[..., Path]) -> Path:
    return compiled_artifact("tiny", 0, **SMALL)


def shell(line: str, artifact: Path) -> subprocess.CompletedProcess[bytes]:
    text = line.replace("DSV41C", " ".join(COMMAND)).replace("ART", str(artifact))
    return subprocess.run(["bash", "-c", text], capture_output=True, check=False)


@pytest.mark.parametrize(("line", "code"), [
    ("DSV41C run ART --prompt-ids 1 --max-new-tokens 2 > /dev/full", 6),
    ("DSV41C run ART --prompt-ids 1 --max-new-tokens 2 >&-", 6),
    ("DSV41C run $'\\xff' --prompt-ids 1", 5),
    ("DSV41C run ART --prompt-ids=--5", 2),
    ("DSV41C run ART --prompt-ids=1-2", 2),
    (f"DSV41C run ART --prompt-ids={'9' * 5000}", 2),
    ("DSV41C run ART --prompt-ids 1 --dump-logits /", 6),
    ("DSV41C run ART --prompt-ids 1 --dump-logits /nowhere/x.npz", 6),
    ("DSV41C run ART --prompts-file <(echo '{\"prompt_ids\": [1], \"temperature\": 1" + "0" * 400 + "}')", 2),
])
def test_ends_with_its_code_and_without_a_traceback(line: str, code: int, artifact: Path) -> None:
    ended = shell(line, artifact)
    assert ended.returncode == code, ended.stderr.decode(errors="replace")
    assert b"Traceback" not in ended.stderr and b"internal error" not in ended.stderr


def test_a_reader_that_stops_early_is_no_error(artifact: Path) -> None:
    ended = shell("set -o pipefail; DSV41C run ART --prompt-ids 1 --max-new-tokens 40 --json | head -c1", artifact)
    assert (ended.stdout, ended.stderr.count(b"Traceback"), ended.returncode) == (b"{", 0, 0)


def test_a_mistake_in_a_prompts_file_names_its_line(artifact: Path, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('[1]\n\n[5, 96]\n')
    ended = shell(f"DSV41C run ART --prompts-file {prompts}", artifact)
    assert ended.returncode == 2 and f"{prompts}:3".encode() in ended.stderr
