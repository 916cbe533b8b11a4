"""Documents stay true: links and paths resolve, commands exist, the error list and the plan examples are current."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from urllib.parse import unquote

import pytest
import typer

from dsv41c.compiler.pipeline import PIPELINE
from dsv41c.runtime.plan import schema
from dsv41c.runtime.plan.decoders import decoder
from dsv41c.runtime.plan.errors import CODES
from dsv41c.tools.cli.main import app

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "tools/docs"
DOCUMENTS = [*(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")), *sorted(DOCS.rglob("*.md"))]
ROOMS = ("compiler", "passes", "graphs", "runtime", "tools", "tests")
GENERATOR = "tools/gen/errors_doc.py"

each_document = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())


def prose(document: Path) -> str:
    """The text without fenced blocks."""
    return re.sub(r"^```.*?^```$", "", document.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def inline_code(document: Path) -> list[str]:
    return re.findall(r"`([^`\n]+)`", prose(document))


def slug(heading: str) -> str:
    """The anchor that a heading gets where the documents are read."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def check_errors_doc(root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, root / GENERATOR, "--check"], capture_output=True, text=True, check=False)


# --- links and paths --------------------------------------


@each_document
def test_relative_links_resolve(document: Path) -> None:
    """Files exist, and so do the headings that a link names."""
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(document)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (document.parent / unquote(name)).resolve() if name else document
        assert file.exists() and file.is_relative_to(ROOT), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", prose(file), re.MULTILINE)
            assert anchor in map(slug, headings), target


@each_document
def test_named_paths_exist(document: Path) -> None:
    """Whatever looks like a path into a room, and whatever ends with a slash, is there."""
    for code in inline_code(document):
        is_path = re.fullmatch(r"[\w.\-]+(/[\w.\-]+)*/?", code) is not None
        if is_path and (code.endswith("/") or (code.split("/")[0] in ROOMS and "/" in code)):
            path = ROOT / code
            assert path.is_dir() if code.endswith("/") else path.exists(), code


def test_every_room_has_a_line_in_the_readme() -> None:
    named = {code for code in inline_code(ROOT / "README.md") if code.endswith("/")}
    assert {f"{room}/" for room in ROOMS if room != "tools"} <= named


def test_the_picture_is_an_svg_with_a_title() -> None:
    root = ElementTree.parse(DOCS / "data-flow.svg").getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert root.find("{http://www.w3.org/2000/svg}title") is not None


# --- commands ---------------------------------------------


def commands() -> set[str]:
    """`compile`, `checkpoint make`, ... as the command line has them."""
    root = typer.main.get_command(app)
    found: set[str] = set()
    for name, command in root.commands.items():  # type: ignore[attr-defined]
        below = getattr(command, "commands", None)
        found |= {name} if below is None else {f"{name} {leaf}" for leaf in below}
    return found


def named_commands(document: Path) -> set[str]:
    """Every `dsv41c WORD [WORD]` in code, as a command where the second word belongs to it."""
    groups = {command.split()[0] for command in commands() if " " in command}
    text = document.read_text(encoding="utf-8")
    code = [*re.findall(r"^```\n(.*?)^```$", text, re.MULTILINE | re.DOTALL), *inline_code(document)]
    found = set()
    for first, second in re.findall(r"\bdsv41c ([a-z]+(?:-[a-z]+)*)(?: ([a-z]+))?", "\n".join(code)):
        found.add(f"{first} {second}" if first in groups else first)
    return found


@each_document
def test_named_commands_exist(document: Path) -> None:
    assert named_commands(document) <= commands()


def test_the_readme_names_every_command() -> None:
    assert named_commands(ROOT / "README.md") == commands()


def test_named_options_exist() -> None:
    """Options in the README belong to some command, or to the server that it shows."""
    root = typer.main.get_command(app)
    known: set[str] = {"--help", "--model-repository", "--backend-config"}
    pending = [root]
    while pending:
        command = pending.pop()
        known |= {option for parameter in command.params for option in parameter.opts}
        pending += getattr(command, "commands", {}).values()
    used = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", (ROOT / "README.md").read_text(encoding="utf-8")))
    assert used <= known


def test_named_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for document in DOCUMENTS:
        used = re.findall(r"(?:^|`)make ([a-z-]+)", document.read_text(encoding="utf-8"), re.MULTILINE)
        assert set(used) <= targets, document.name


# --- generated and typed content --------------------------


def test_error_list_is_current() -> None:
    result = check_errors_doc(ROOT)
    assert result.returncode == 0, result.stderr


def test_every_code_is_listed_once() -> None:
    listed = re.findall(r"^\| `(DSV41C-E\d{4})` \|", (DOCS / "errors.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(CODES)


def test_a_changed_error_list_exits_1(tmp_path: Path) -> None:
    for name, change in ((GENERATOR, ""), ("tools/docs/errors.md", "surplus")):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_text((ROOT / name).read_text(encoding="utf-8") + change, encoding="utf-8")
    result = check_errors_doc(tmp_path)
    assert result.returncode == 1
    assert "errors_doc.py" in result.stderr


@each_document
def test_named_codes_exist(document: Path) -> None:
    codes = set(re.findall(r"DSV41C-E\d{4}", document.read_text(encoding="utf-8")))
    assert codes <= set(CODES)


def test_exit_codes_of_errors_are_explained() -> None:
    explained = set(re.findall(r"^\| (\d+) \|", (DOCS / "exit-codes.md").read_text(encoding="utf-8"), re.MULTILINE))
    assert {str(entry.exit_code) for entry in CODES.values()} <= explained


def plan_examples() -> list[tuple[str, str]]:
    """(name of the dataclass, JSON) of each example of plan.md; a heading names the dataclass."""
    examples, name = [], ""
    pieces = re.split(r"^(## .+)$", (DOCS / "plan.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    for piece in pieces:
        if piece.startswith("## "):
            found = re.search(r"`(\w+)`", piece)
            name = found.group(1) if found else ""
        else:
            examples += [(name, text) for text in re.findall(r"^```json\n(.*?)^```$", piece, re.MULTILINE | re.DOTALL)]
    return examples


def test_plan_examples_decode() -> None:
    """Each example is what the codec accepts for the dataclass in its heading."""
    examples = plan_examples()
    assert {"Kernel", "Launch", "Method", "Value"} <= {name for name, _ in examples}
    for name, text in examples:
        decoder(getattr(schema, name))(json.loads(text), name)


def test_plan_page_names_every_key_and_feature() -> None:
    text = (DOCS / "plan.md").read_text(encoding="utf-8")
    for word in (*schema.Plan.__dataclass_fields__, *schema.FEATURES, *schema.AXES, *schema.FLOW_REQUIREMENTS):
        assert word in text, word


def test_the_readme_counts_the_passes() -> None:
    """README says that there is one pass; whoever adds the second one rewrites that sentence."""
    assert ("There is one today" in (ROOT / "README.md").read_text(encoding="utf-8")) == (len(PIPELINE) == 1)


# --- decision records -------------------------------------


def test_decision_records_are_numbered_and_complete() -> None:
    records = sorted((DOCS / "adr").glob("*.md"))
    for number, record in enumerate(records, start=1):
        text = record.read_text(encoding="utf-8")
        assert record.name.startswith(f"{number:04d}-") and text.startswith(f"# {number:04d} ")
        for heading in ("Context", "Decision", "Consequences", "What would change our mind"):
            assert f"\n## {heading}\n" in text, record.name


def test_the_list_of_passes_is_the_pipeline() -> None:
    """One row a pass, in order; a fusion's row names every op that it puts in."""
    rows = re.findall(r"^\| `(\w+)` \|[^|]*\|([^|]*)\|", (DOCS / "passes.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert [name for name, _ in rows] == [step.name for step in PIPELINE]
    for (_, by), step in zip(rows, PIPELINE, strict=True):
        assert set(re.findall(r"`(\w+)`", by)) == set(getattr(step, "ops", ()))
