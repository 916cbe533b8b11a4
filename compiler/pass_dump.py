"""PassDump: the program as text before the first pass and after each one, written as files with a page to read."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from dsv41c.compiler.output_directory import new_directory, refuse_existing
from dsv41c.compiler.pass_dump_page import Section, page
from dsv41c.compiler.program import Program
from dsv41c.compiler.program_text.printer import print_program
from dsv41c.passes.base import Note, Pass, PassResult

EXISTS = "DSV41C-E0605"
PAGE = "index.html"


@dataclass
class PassDump:
    """Watches one compilation. `write` may be called however it ended: what ran until then is there to read."""

    output: Path
    _texts: list[tuple[str, str]] = field(default_factory=list)  # name of a pass, text behind it
    _notes: list[tuple[Note, ...]] = field(default_factory=list)

    @classmethod
    def to(cls, output: Path) -> PassDump:
        """E0605 for a path that exists and is no empty directory."""
        if not _is_empty_directory(output):
            refuse_existing(output, EXISTS)
        return cls(output)

    def captured(self, program: Program) -> None:
        self._texts.append(("captured", print_program(program)))

    def passed(self, step: Pass, before: Program, result: PassResult) -> None:
        self._texts.append((step.name, print_program(result.program)))
        self._notes.append(result.notes)

    def write(self) -> None:
        """`00-captured.txt`, `01-PASS.txt`, ... and `index.html`, all at once; nothing when nothing was captured."""
        if not self._texts:
            return
        if _is_empty_directory(self.output):
            self.output.rmdir()
        pairs = zip(self._texts, self._texts[1:], self._notes, strict=False)
        sections = [Section(name, before, after, notes) for (_, before), (name, after), notes in pairs]
        with new_directory(self.output, EXISTS) as folder:
            for number, (name, text) in enumerate(self._texts):
                (folder / f"{number:02d}-{name}.txt").write_text(text, encoding="utf-8")
            (folder / PAGE).write_text(page(sections), encoding="utf-8")


def _is_empty_directory(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink() and not any(path.iterdir())
