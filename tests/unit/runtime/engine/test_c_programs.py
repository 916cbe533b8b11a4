"""C programs without Python: the example builds as its first comment says and streams tokens."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dsv41c.runtime.library import installed_file
from dsv41c.runtime.load import load
from tests.native.c_programs import build
from tests.unit.runtime.engine.conftest import prompt_of

ROOT = Path(__file__).parents[4]
EXAMPLE = ROOT / "tools/examples/stream.c"


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(EXAMPLE, tmp_path_factory.mktemp("example"))


def test_the_example_is_short() -> None:
    assert EXAMPLE.read_text().count("\n") < 80


def test_the_example_streams_the_tokens_of_a_demo_artifact(stream: Path,
                                                           compiled_artifact: Callable[..., Path]) -> None:
    artifact = compiled_artifact("demo", 0, max_model_len=64, block_size=16, max_num_seqs=2, max_num_batched_tokens=16)
    prompt = prompt_of(20)
    with load(artifact) as runtime:
        expected = runtime.generate(prompt, max_new_tokens=6, temperature=0.5, seed=3).tokens
    text = ",".join(map(str, prompt))
    libraries = subprocess.run(["ldd", str(stream)], capture_output=True, text=True, check=True).stdout
    names = [line.split()[0] for line in libraries.splitlines()]
    assert "libdsv41c.so.1" in names and not any("python" in name for name in names)
    done = subprocess.run([str(stream), str(artifact), text, "6", "0.5", "3"], capture_output=True, text=True, env={})
    assert done.returncode == 0, done.stderr
    assert tuple(map(int, done.stdout.split())) == expected


@pytest.mark.parametrize(("arguments", "message"), [
    (["/nowhere", "1"], "DSV41C-E0601"), (["ART", "1,999999999"], "DSV41C-E0902"),
    (["ART", "1", "0"], "max_new_tokens"), (["ART"], "usage: "),
])
def test_the_example_says_what_is_wrong(stream: Path, engine_artifact: Path, arguments: list[str],
                                        message: str) -> None:
    given = [str(engine_artifact) if a == "ART" else a for a in arguments]
    done = subprocess.run([str(stream), *given], capture_output=True, text=True, env={})
    assert done.returncode != 0 and message in done.stderr


def test_the_cmake_package_gives_a_target(tmp_path: Path, engine_artifact: Path) -> None:
    package = installed_file("lib/cmake/dsv41c/dsv41cConfig.cmake").parent
    (tmp_path / "CMakeLists.txt").write_text(
        f"cmake_minimum_required(VERSION 3.20)\nproject(use C)\nfind_package(dsv41c 0.1 REQUIRED PATHS {package} "
        f"NO_DEFAULT_PATH)\nadd_executable(use {EXAMPLE})\ntarget_link_libraries(use PRIVATE dsv41c::dsv41c)\n")
    cmake = Path(sys.executable).parent / "cmake"  # the one that `make install` brings
    for command in ([cmake, "-S", ".", "-B", "build"], [cmake, "--build", "build"]):
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    done = subprocess.run([str(tmp_path / "build/use"), str(engine_artifact), "1,2,3", "4"], capture_output=True,
                          text=True)
    assert done.returncode == 0 and len(done.stdout.split()) == 4, done.stderr
