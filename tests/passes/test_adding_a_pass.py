"""Adding a fusion as CONTRIBUTING tells it, in a copy of the package: the command line lists it and it matches."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CHANGED = ("compiler", "passes")
# An editable installation has a finder that would answer before the copy.
MAIN = ("import sys\nsys.meta_path[:] = [f for f in sys.meta_path if not type(f).__name__.startswith('ScikitBuild')]\n"
        "sys.path.insert(0, sys.argv.pop(1))\nfrom dsv41c.tools.cli.main import run\nsys.exit(run(sys.argv[1:]))")
TEXT = """method decode rows D in 1..16 {
  input %gate : float32 [D, 64] = "gate"
  input %up : float32 [D, 64] = "up"
  %a = swiglu(%gate, %up, 10.0, float32)
  %b = quantize_fp8(%a)
  return b=%b
}
"""


def blocks() -> dict[str, str]:
    """Code blocks of the section by the comment in their first line."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text[text.index("### A fusion, step by step"):].split("\n## ")[0]
    found = re.findall(r"^```python\n# (\S+(?:: \w+)?)\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    assert len(found) == section.count("```python")
    return dict(found)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package with the section's code in its places."""
    farm = tmp_path_factory.mktemp("package")
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["scikit-build"]["wheel"]["packages"]
    shutil.copytree(ROOT / packages["dsv41c"], farm / "dsv41c", ignore=shutil.ignore_patterns("__pycache__"))
    for name, source in packages.items():
        if source in CHANGED:
            shutil.copytree(ROOT / source, farm / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif name != "dsv41c":
            (farm / name).parent.mkdir(exist_ok=True)
            (farm / name).symlink_to(ROOT / source)
    for place, code in blocks().items():
        add(farm / "dsv41c", *place.partition(": ")[::2], code)
    return farm


def add(package: Path, path: str, table: str, code: str) -> None:
    """A new file, an entry at the end of a tuple, or a function before the tuple of declarations."""
    file = package / path
    if not file.exists():
        file.write_text(code)
        return
    text = file.read_text()
    if table:
        start = re.search(rf"^{table}: .*= \($", text, re.MULTILINE)
        assert start is not None
        end = text.index("\n)", start.end())
        text = f"{text[:end]}\n{code.rstrip()}{text[end:]}"
    else:
        start = re.search(r"^SPECS: ", text, re.MULTILINE)
        assert start is not None
        text = f"{text[:start.start()]}{code}\n\n{text[start.start():]}"
    if table == "PIPELINE":
        name = code.strip().removesuffix("(),")
        module = re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower()
        text = text.replace("\nPIPELINE:", f"\nfrom dsv41c.passes.fuse.{module} import {name}\n\nPIPELINE:", 1)
    file.write_text(text)


def command(package: Path, *arguments: str, text: str = "") -> Any:
    ended = subprocess.run([sys.executable, "-c", MAIN, package, *arguments, "--json"], input=text,
                           capture_output=True, text=True, timeout=240)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_the_section_changes_the_places_that_it_names() -> None:
    assert list(blocks()) == ["compiler/ops/fused_dense.py", "compiler/ops/fused_dense.py: SPECS",
                              "passes/fuse/swiglu_cast.py", "compiler/pipeline.py: PIPELINE"]


def test_the_new_pass_is_listed_shown_and_matches(package: Path) -> None:
    listed = command(package, "passes", "list")["passes"]
    assert listed[-1]["name"] == "swiglu_cast"
    (op,) = command(package, "passes", "show", "swiglu_cast")["ops"]
    assert op["patterns"] == ["%0 = swiglu(gate, up, limit, dtype)\n%1 = quantize_fp8(%0)\nreturn %1"]
    result = command(package, "passes", "run", "swiglu_cast", text=TEXT)
    assert result["passes"][0]["num_matches"] == 1
    assert "%swiglu_cast = swiglu_cast(%gate, %up, 10.0, float32)" in result["program"]
    near_miss = TEXT.replace("64]", "48]")
    (refused,) = command(package, "passes", "run", "swiglu_cast", text=near_miss)["passes"][0]["refusals"]
    assert "a cast of 48 columns" in refused["reason"]
