"""`make mutate`: deletes each guard of the fusions in turn and asks the tests; ends with 1 if they let one pass.

Every mutant lives in a fork of this process, which has imported torch and pytest and nothing that is mutated.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]
os.environ["OMP_NUM_THREADS"] = "1"

import mutants  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402, F401  imported once, for all forks

OPTIONS = ("-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", "--no-header", "--tb=line", "-rf")


@dataclass(frozen=True)
class Outcome:
    """`by`: the test that failed, or what came instead of tests."""

    mutant: mutants.Mutant
    killed: bool
    by: str
    seconds: float


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, help="as many mutants, drawn")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", default=[""], help="mutants whose kind and name hold one of these texts")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(arguments)
    os.chdir(ROOT)
    candidates = [m for m in known() if any(text in f"{m.kind} {m.name}" for text in chosen.only)]
    if chosen.sample is not None:
        candidates = random.Random(chosen.seed).sample(candidates, chosen.sample)
    if not candidates:
        raise SystemExit("no such mutant")
    outcomes = list(tried(candidates))
    survivors = [o for o in outcomes if not o.killed]
    if chosen.json:
        print(json.dumps([{"kind": o.mutant.kind, "name": o.mutant.name, "killed": o.killed, "by": o.by}
                          for o in outcomes]))
    print(f"{len(outcomes) - len(survivors)} of {len(outcomes)} mutants killed", file=sys.stderr)
    return 1 if survivors else 0


def known() -> list[mutants.Mutant]:
    """The deletions are listed by a fork, which imports the product."""
    with tempfile.TemporaryDirectory() as folder:
        listing = Path(folder) / "listed.json"
        if forked(lambda: _write(listing, json.dumps(mutants.listed()))) != 0:
            raise SystemExit("the product cannot be imported")
        deletions = json.loads(listing.read_text())
    return [*mutants.edits(), *(mutants.deletion(kind, name, tuple(tests)) for kind, name, tests in deletions)]


def _write(path: Path, text: str) -> None:
    path.write_text(text)


def tried(candidates: Sequence[mutants.Mutant]) -> Iterator[Outcome]:
    """The tests pass without a mutant; then each mutant by itself."""
    every = {m.tests for m in candidates}
    tests = mutants.SMALL if mutants.SMALL in every else tuple(sorted({path for t in every for path in t}))
    code, text = asked(lambda: None, tests)
    if code != pytest.ExitCode.OK:
        raise SystemExit(f"{' '.join(tests)} must pass without a mutant:\n{text}")
    for mutant in candidates:
        start = time.perf_counter()
        code, text = asked(mutant.apply, mutant.tests)
        failed = [line for line in text.splitlines() if line.startswith(("FAILED ", "ERROR "))]
        if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            raise SystemExit(f"{mutant.kind} {mutant.name}: pytest ended with {code}\n{text}")
        outcome = Outcome(mutant, code == pytest.ExitCode.TESTS_FAILED, failed[0].split(" - ")[0] if failed else "",
                          time.perf_counter() - start)
        verdict = "killed  " if outcome.killed else "SURVIVED"
        print(f"{verdict} {mutant.kind:10} {mutant.name:58} {outcome.seconds:5.1f} s  {outcome.by}", file=sys.stderr,
              flush=True)
        yield outcome


def asked(change: Callable[[], None], tests: Sequence[str]) -> tuple[int, str]:
    """Exit code and output of pytest in a fork that was changed before."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.txt"

        def run() -> int:
            with report.open("w") as out:
                os.dup2(out.fileno(), 1)
                os.dup2(out.fileno(), 2)
                change()
                return int(pytest.main([*OPTIONS, *tests]))

        return forked(run), report.read_text()


def forked(run: Callable[[], int | None]) -> int:
    """Exit code of `run` in a fork of this process; 70 for an exception."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        code = 70
        try:
            code = run() or 0
        except BaseException as error:  # a fork must not go on as its parent
            print(repr(error), file=sys.stderr)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code if code < 64 else 70)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
