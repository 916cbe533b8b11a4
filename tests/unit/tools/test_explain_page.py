"""`explain --html`: one file that a browser shows without errors and that holds every part of the plan."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dsv41c.runtime.manifest import Manifest
from dsv41c.runtime.plan.page import page
from dsv41c.runtime.plan.schema import Break, Plan
from tests.acceptance.flash_plan import FlashPlan
from tests.damage.command import Command
from tests.unit.runtime.plan.plan_strategies import example_plan
from tests.unit.tools.chromium import Dom, open_page, read_png

SCREENSHOTS = Path(__file__).parents[3] / "build/screenshots"


def assert_holds(dom: Dom, plan: Plan) -> None:
    """Every method, segment, break and bucket has an element."""
    assert dom.values("data-method") == [m.name for m in plan.methods]
    for method in plan.methods:
        breaks = [step for step in method.steps if isinstance(step, Break)]
        assert dom.values("data-bucket", method.name) == [str(b) for b in method.buckets]
        assert dom.values("data-break", method.name) == [str(n) for n in range(len(breaks))]
        segments = len(method.steps) - len(breaks)
        assert dom.values("data-segment", method.name) == [str(n) for n in range(segments)]


@pytest.fixture(scope="module")
def flash_page(flash_plan: Callable[[str], FlashPlan], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Plan]:
    plan = Manifest.read(flash_plan("cpu").artifact).read_plan()
    path = tmp_path_factory.mktemp("page") / "flash.html"
    path.write_text(page(plan, "flash"), encoding="utf-8")
    return path, plan


def test_the_page_of_the_published_model(flash_page: tuple[Path, Plan]) -> None:
    path, plan = flash_page
    seen = open_page(path, "--dump-dom")
    dom = Dom(seen.out)
    assert seen.console == []
    assert dom.elements[0][1].get("data-ready") == "1" and "data-errors" not in dom.elements[0][1]
    assert_holds(dom, plan)
    shown = [a["data-method"] for _, a, _ in dom.elements if "data-method" in a and "hidden" not in a]
    assert shown == [max(plan.methods, key=lambda m: m.arena_bytes).name]


@pytest.mark.parametrize(("scheme", "number"), [("light", 1), ("dark", 0)])
def test_a_screenshot_shows_something(flash_page: tuple[Path, Plan], scheme: str, number: int) -> None:
    """Kept under build/screenshots; the page follows the browser's colour scheme."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    picture = SCREENSHOTS / f"flash-{scheme}.png"
    picture.unlink(missing_ok=True)
    seen = open_page(flash_page[0], f"--blink-settings=preferredColorScheme={number}", f"--screenshot={picture}")
    assert seen.console == []
    pixels = read_png(picture)[:, :, :3].astype(int)
    colours, counts = np.unique(pixels @ (1 << 16, 1 << 8, 1), return_counts=True)
    red = colours[counts.argmax()] >> 16  # of the background
    assert red > 200 if scheme == "light" else red < 60
    assert len(colours) > 50 and counts.max() < 0.8 * counts.sum()
    lower = pixels[len(pixels) // 2:]  # the map: values of several kinds cover it
    assert (np.ptp(lower, axis=2) > 60).mean() > 0.05


def test_a_page_with_breaks(tmp_path: Path) -> None:
    plan = example_plan()
    assert any(isinstance(step, Break) for method in plan.methods for step in method.steps)
    path = tmp_path / "page.html"
    path.write_text(page(plan, "a <b> & c"), encoding="utf-8")
    seen = open_page(path, "--dump-dom")
    assert seen.console == []
    assert_holds(Dom(seen.out), plan)
    assert "a &lt;b&gt; &amp; c" in seen.out


def test_an_error_in_a_page_would_be_seen(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("<!DOCTYPE html><p>x<script>console.error('first'); nothing.here;</script>")
    console = open_page(path, "--dump-dom").console
    assert "first" in console[0] and "nothing is not defined" in console[1]


def test_the_command_writes_one_file_without_references(artifact: Path, tmp_path: Path, command: Command) -> None:
    target = tmp_path / "out.html"
    result = command("explain", artifact, "--html", target, "--json").json
    text = target.read_text(encoding="utf-8")
    assert (result["html"], result["bytes"]) == (str(target), target.stat().st_size)
    assert list(tmp_path.iterdir()) == [target]
    assert not re.findall(r"https?:|src=|href=|@import|url\(", text)
    assert_holds(Dom(text), Manifest.read(artifact).read_plan())


def test_a_page_that_cannot_be_written_is_an_error(artifact: Path, tmp_path: Path, command: Command) -> None:
    ended = command("explain", artifact, "--html", tmp_path / "no" / "out.html")
    assert ended.code == 6 and "DSV41C-E0606" in ended.err


def test_a_page_is_one_question(artifact: Path, tmp_path: Path, command: Command) -> None:
    ended = command("explain", artifact, "--html", tmp_path / "out.html", "--passes")
    assert ended.code == 2 and not list(tmp_path.iterdir())
