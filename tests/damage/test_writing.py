"""Whatever is written appears whole or not at all: full disks, missing permissions, races, killed processes."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from dsv41c.compiler.output_directory import new_directory
from dsv41c.runtime.plan.errors import Dsv41cError
from dsv41c.tools.cli.main import run
from tests.damage.command import Command, check_refusal, tree
from tests.damage.conftest import OPTIONS

PROCESSES, KILLS = 6, 10


# --- space and permission ---------------------------------


@contextmanager
def file_size_limit(limit: int) -> Iterator[None]:
    """What `ulimit -f` sets."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)


@pytest.mark.parametrize("limit", [1000, 200_000, 700_000], ids=["config", "plan", "weights"])
def test_compile_at_a_file_size_limit(limit: int, tiny_checkpoint: Path, quick_compile: None, command: Command,
                                      tmp_path: Path) -> None:
    with file_size_limit(limit):
        ended = command("compile", tiny_checkpoint, "-o", tmp_path / "art", *OPTIONS)
    check_refusal(ended, "E0606", "no space for the output", "File too large")
    assert list(tmp_path.iterdir()) == []


def test_checkpoint_make_at_a_file_size_limit(command: Command, tmp_path: Path) -> None:
    with file_size_limit(300_000):
        ended = command("checkpoint", "make", "-o", tmp_path / "ckpt")
    check_refusal(ended, "E0606", "no space for the output")
    assert list(tmp_path.iterdir()) == []


def test_logits_at_a_file_size_limit(sound: Path, command: Command, tmp_path: Path) -> None:
    with file_size_limit(1000):
        ended = command("run", sound, "--prompt-ids", "1", "--max-new-tokens", "9", "--ignore-eos",
                        "--dump-logits", tmp_path / "x.npz")
    check_refusal(ended, "E0606", "File too large")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """1 MiB; without the right to mount, the file size limits above stand for it."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("this user may not mount a file system")
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_compile_on_a_full_disk(small_disk: Path, tiny_checkpoint: Path, quick_compile: None, command: Command) -> None:
    ended = command("compile", tiny_checkpoint, "-o", small_disk / "art", *OPTIONS)
    check_refusal(ended, "E0606", "no space for the output", "No space left")
    assert list(small_disk.iterdir()) == []


def test_an_output_below_a_file(tiny_checkpoint: Path, quick_compile: None, command: Command, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    ended = command("compile", tiny_checkpoint, "-o", tmp_path / "file" / "art", *OPTIONS)
    check_refusal(ended, "E0606", "output cannot be written")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_an_output_with_too_long_a_name(tiny_checkpoint: Path, quick_compile: None, command: Command,
                                        tmp_path: Path) -> None:
    check_refusal(command("compile", tiny_checkpoint, "-o", tmp_path / ("x" * 300), *OPTIONS), "E0606", "too long")


def test_a_folder_that_may_not_be_written(tiny_checkpoint: Path, quick_compile: None, command: Command,
                                          public_folder: Path, as_nobody: Callable[[], None]) -> None:
    checkpoint = Path(shutil.copytree(tiny_checkpoint, public_folder / "ckpt"))
    as_nobody()
    for output in (public_folder / "art", public_folder / "new" / "deep" / "art"):
        check_refusal(command("compile", checkpoint, "-o", output, *OPTIONS), "E0606", "no permission to write")
    check_refusal(command("checkpoint", "make", "-o", public_folder / "x"), "E0606", "no permission to write")
    assert [p.name for p in public_folder.iterdir()] == ["ckpt"]


def test_reading_needs_nothing_to_write_to(sound: Path, command: Command, public_folder: Path,
                                           as_nobody: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """An unprivileged user without a home, and everything read-only."""
    artifact = Path(shutil.copytree(sound, public_folder / "art"))
    artifact.chmod(0o755)
    monkeypatch.setenv("HOME", "/nonexistent")
    for name in ("TMPDIR", "XDG_CACHE_HOME", "DSV41C_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    before = tree(public_folder)
    command("check", artifact)
    as_nobody()
    for arguments in (["inspect"], ["explain"], ["check"], ["run", "--prompt-ids", "1,2"]):
        assert command(*arguments, artifact).code == 0, arguments
    assert command("diff", artifact, artifact).code == 0
    assert tree(public_folder) == before
    assert not Path("/nonexistent").exists()


# --- races and killed processes ---------------------------


def start(arguments: list[str]) -> int:
    """A command in a process of its own that has everything imported already; its process id."""
    process = os.fork()
    if process == 0:
        torch.set_num_threads(1)  # threads do not survive a fork
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, 1)
        os.dup2(devnull, 2)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os._exit(run(arguments))
    return process


def exit_code(process: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


@pytest.fixture
def alone(tiny_checkpoint: Path, quick_compile: None, command: Command, tmp_path: Path) -> Path:
    """The same artifact from a compilation that nothing disturbs."""
    assert command("compile", tiny_checkpoint, "-o", tmp_path / "alone", *OPTIONS).code == 0
    return tmp_path / "alone"


def test_six_compilations_into_one_output(tiny_checkpoint: Path, alone: Path, tmp_path: Path) -> None:
    """Each ends well or says that the output exists; the result is that of a lone one; nothing else is left."""
    processes = [start(["compile", str(tiny_checkpoint), "-o", str(tmp_path / "art"), *OPTIONS])
                 for _ in range(PROCESSES)]
    codes = sorted(exit_code(process) for process in processes)
    assert codes[0] == 0 and set(codes) <= {0, 2}
    assert codes.count(0) == 1
    assert tree(tmp_path / "art") == tree(alone)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["alone", "art"]


def test_killed_at_random_times(tiny_checkpoint: Path, alone: Path, command: Command, tmp_path: Path) -> None:
    """No half artifact, no lock that anybody waits for; the next compilation removes what the killed ones left."""
    arguments = ["compile", str(tiny_checkpoint), "-o", str(tmp_path / "art"), *OPTIONS]
    begin = time.perf_counter()
    assert exit_code(start(arguments)) == 0
    usual = time.perf_counter() - begin
    draws = random.Random(7)
    for _ in range(KILLS):
        shutil.rmtree(tmp_path / "art", ignore_errors=True)
        process = start(arguments)
        time.sleep(draws.uniform(0, usual))
        os.kill(process, signal.SIGKILL)
        exit_code(process)
        assert not (tmp_path / "art").exists() or tree(tmp_path / "art") == tree(alone)
    shutil.rmtree(tmp_path / "art", ignore_errors=True)
    begin = time.perf_counter()
    assert command(*arguments).code == 0
    assert time.perf_counter() - begin < 2 * usual + 1
    assert tree(tmp_path / "art") == tree(alone)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["alone", "art"]


def test_interrupted_at_random_times(tiny_checkpoint: Path, alone: Path, tmp_path: Path) -> None:
    draws = random.Random(11)
    for _ in range(5):
        process = start(["compile", str(tiny_checkpoint), "-o", str(tmp_path / "art"), *OPTIONS])
        time.sleep(draws.uniform(0.02, 0.15))
        os.kill(process, signal.SIGINT)
        assert exit_code(process) in (130, 0)
        assert not (tmp_path / "art").exists() or tree(tmp_path / "art") == tree(alone)
        shutil.rmtree(tmp_path / "art", ignore_errors=True)
        assert [p.name for p in tmp_path.iterdir()] == ["alone"]


def test_ctrl_c_while_a_user_compiles(tiny_checkpoint: Path, tmp_path: Path) -> None:
    """The whole command, interrupted while it captures the model."""
    process = subprocess.Popen([sys.executable, "-m", "dsv41c.tools.cli.main", "compile", tiny_checkpoint, "-o",
                                tmp_path / "art", *OPTIONS], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    time.sleep(2.5)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    # Python ends itself by the signal when it comes while an import is under way; a shell reports 130 for both.
    assert process.returncode in (130, -signal.SIGINT) and out == "", err
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


# --- temporaries ------------------------------------------


def write(output: Path) -> None:
    with new_directory(output, "DSV41C-E0605") as folder:
        (folder / "x").write_text("x")


def test_a_temporary_of_a_dead_process_is_removed(tmp_path: Path) -> None:
    abandoned = tmp_path / f"art.tmp-{os.getpid()}"  # even of a process with this number
    (abandoned / "kernels").mkdir(parents=True)
    (tmp_path / "art.tmp-file").write_text("no directory")
    (tmp_path / "art2.tmp-x").mkdir()
    write(tmp_path / "art")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["art", "art.tmp-file", "art2.tmp-x"]


def test_a_temporary_of_a_living_process_stays(tmp_path: Path) -> None:
    """The one that is ready first wins, and the other one is told."""
    with pytest.raises(Dsv41cError, match="DSV41C-E0605"), new_directory(tmp_path / "art", "DSV41C-E0605") as outer:
        (outer / "y").write_text("y")
        write(tmp_path / "art")
        assert outer.exists()
    assert [p.name for p in tmp_path.rglob("*")] == ["art", "x"]


def test_parents_are_made_and_removed_again(tmp_path: Path) -> None:
    write(tmp_path / "a" / "b" / "art")
    with pytest.raises(KeyError), new_directory(tmp_path / "a" / "c" / "d" / "art", "DSV41C-E0605"):
        raise KeyError
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == ["b"]


def test_a_name_with_wildcards_means_itself(tmp_path: Path) -> None:
    (tmp_path / "other.tmp-1").mkdir()
    write(tmp_path / "*[o]?")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["*[o]?", "other.tmp-1"]


def test_the_output_has_the_usual_permissions(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    write(tmp_path / "art")
    assert (tmp_path / "art").stat().st_mode == (tmp_path / "plain").stat().st_mode
