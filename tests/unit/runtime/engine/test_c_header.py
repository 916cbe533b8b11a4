"""The public header: valid C and C++, a layout that only grows, one symbol in the library, mirrors that agree."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dsv41c.runtime import c_api
from dsv41c.runtime.library import PUBLIC, installed_file

ROOT = Path(__file__).parents[4]
FROZEN = ROOT / "runtime/cpp/abi/v1.txt"
HEADER = ROOT / "runtime/cpp/include/dsv41c/dsv41c.h"
MIRRORS = {"dsv_api": c_api.Api, "dsv_engine_options": c_api.EngineOptions, "dsv_engine_info": c_api.EngineInfo,
           "dsv_stats": c_api.Stats, "dsv_generate_params": c_api.GenerateParams, "dsv_event": c_api.Event}


def run_tool(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(ROOT / "tools/gen" / name), *arguments], capture_output=True, text=True)


@pytest.fixture(scope="module")
def layout() -> dict[str, list[tuple[str, int, int]]]:
    return by_struct(run_tool("c_api_layout.py").stdout)


def by_struct(text: str) -> dict[str, list[tuple[str, int, int]]]:
    found: dict[str, list[tuple[str, int, int]]] = {}
    for line in text.splitlines():
        place, offset, size = line.split()
        struct, name = place.split(".")
        found.setdefault(struct, []).append((name, int(offset), int(size)))
    return found


@pytest.mark.parametrize(("compiler", "language"), [("gcc", "-std=c11"), ("g++", "-std=c++17")])
def test_the_header_is_valid_c_and_cpp(compiler: str, language: str, tmp_path: Path) -> None:
    source = tmp_path / ("use.c" if compiler == "gcc" else "use.cc")
    source.write_text("#include <dsv41c/dsv41c.h>\nint main(void) { dsv_generate_params p; "
                      "dsv_generate_params_init(&p); return p.struct_size != sizeof p; }\n")
    program = tmp_path / "use"
    subprocess.run([compiler, language, "-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{HEADER.parents[1]}",
                    str(source), "-o", str(program)], check=True)
    subprocess.run([str(program)], check=True)


def test_the_frozen_layout_is_the_beginning_of_the_present_one(layout: dict[str, list[tuple[str, int, int]]]) -> None:
    for struct, fields in by_struct(FROZEN.read_text()).items():
        assert layout[struct][: len(fields)] == fields, struct


def test_the_gate_sees_every_struct_of_the_header(layout: dict[str, list[tuple[str, int, int]]]) -> None:
    assert set(layout) == set(re.findall(r"^\} (dsv_\w+);", HEADER.read_text(), re.MULTILINE))
    for fields in layout.values():
        assert fields[0] == ("struct_size", 0, 8)


@pytest.mark.parametrize("struct", MIRRORS)
def test_mirrors_in_python_have_the_layout_of_c(struct: str, layout: dict[str, list[tuple[str, int, int]]]) -> None:
    mirror: type[ctypes.Structure] = MIRRORS[struct]
    assert [(name, getattr(mirror, name).offset, getattr(mirror, name).size)
            for name, *_ in mirror._fields_] == layout[struct]


def test_structs_have_no_holes(layout: dict[str, list[tuple[str, int, int]]]) -> None:
    """A hole could not be told from a field of a newer version."""
    for struct, fields in layout.items():
        ends = [0, *(offset + size for _, offset, size in fields)]
        assert [offset for _, offset, _ in fields] == ends[:-1], struct
        assert ends[-1] % 8 == 0, struct


def test_the_library_has_one_symbol_and_needs_no_torch() -> None:
    library = installed_file(f"lib/{PUBLIC}")
    symbols = subprocess.run(["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True)
    assert [line.split()[-1] for line in symbols.stdout.splitlines() if " A " not in line] == [
        "dsv41c_get_api_v1@@DSV41C_1"]
    dynamic = subprocess.run(["readelf", "-d", str(library)], capture_output=True, text=True, check=True).stdout
    assert f"soname: [{PUBLIC}]" in dynamic and "NODELETE" in dynamic
    assert not re.search(r"NEEDED.*(torch|c10|python)", dynamic)


def test_the_reference_is_generated_from_the_header() -> None:
    done = run_tool("c_api_doc.py", "--check")
    assert done.returncode == 0, done.stderr
    page = (ROOT / "tools/docs/c-api.md").read_text()
    for name, *_ in c_api.Api._fields_:
        assert re.search(rf"\b{name}\b", page)
    assert [f"**R{i}**" in page for i in range(1, 11)] == [True] * 10
