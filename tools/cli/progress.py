"""Progress on stderr: a live line on a terminal, nothing where stderr is a file or a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


@contextmanager
def phases() -> Iterator[Callable[[str], None]]:
    """A function that names the phase which starts now."""
    if not sys.stderr.isatty():
        yield lambda phase: None
        return
    with Console(stderr=True).status("starting") as status:
        yield status.update


@contextmanager
def counter(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """A function that is called once for each of at most `total` units; its argument is ignored."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(title, total=total)
        yield lambda _: progress.advance(task)
