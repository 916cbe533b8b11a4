"""A slice of `make mutate`: drawn mutants are killed by the tests of the fusions, and a survivor is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def mutate(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, ROOT / "tools/mutate/mutate.py", *arguments], capture_output=True, text=True,
                          timeout=540)


def test_drawn_deletions_are_killed() -> None:
    """`make mutate` takes all of them, and the edits of the search, which cost more."""
    ended = mutate("--only", "guard ", "constraint ", "hook ", "--sample", "4", "--seed", "5")
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.endswith("4 of 4 mutants killed\n")


def test_a_survivor_is_told_and_ends_with_1(tmp_path: Path) -> None:
    """The tests of another pass say nothing about this constraint."""
    code = (f"import sys; sys.path.insert(0, {str(ROOT / 'tools/mutate')!r})\n"
            "import mutate, mutants\n"
            "listed = mutants.listed\n"
            "mutants.listed = lambda: [(kind, name, ('tests/passes/fuse/test_norm_cast.py',)) for kind, name, _ in "
            "listed() if name.startswith('grouped_out')]\n"
            "sys.exit(mutate.main(['--only', 'constraint ']))")
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert ended.returncode == 1 and "SURVIVED constraint grouped_out 0" in ended.stderr, ended.stderr


def test_an_unknown_mutant_is_refused() -> None:
    assert mutate("--only", "nothing of that name").returncode != 0
