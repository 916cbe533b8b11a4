"""The `dsv41c` command: its subcommands, and how every error becomes an exit code (tools/docs/exit-codes.md)."""

from __future__ import annotations

import errno
import io
import json
import sys
import traceback
from typing import Annotated

import typer

from dsv41c.runtime.plan.errors import INTERNAL, MEMORY, Dsv41cError
from dsv41c.tools.cli.bench import bench_app
from dsv41c.tools.cli.bisect import bisect_command
from dsv41c.tools.cli.check import check_command
from dsv41c.tools.cli.checkpoint import checkpoint_app
from dsv41c.tools.cli.compile import compile_command
from dsv41c.tools.cli.diff import diff_command
from dsv41c.tools.cli.doctor import doctor_command
from dsv41c.tools.cli.explain import explain_command
from dsv41c.tools.cli.export_triton import export_triton_command
from dsv41c.tools.cli.inspect import inspect_command
from dsv41c.tools.cli.passes import passes_app
from dsv41c.tools.cli.plan import plan_command
from dsv41c.tools.cli.run import run_command

INTERRUPTED = 130

# Plain help text: the rich form costs more time than everything else that --help does.
app = typer.Typer(name="dsv41c", no_args_is_help=True, add_completion=False, rich_markup_mode=None,
                  pretty_exceptions_enable=False)
app.add_typer(checkpoint_app, name="checkpoint")
app.command("compile")(compile_command)
app.command("plan")(plan_command)
app.command("run")(run_command)
app.command("export-triton")(export_triton_command)
app.command("inspect")(inspect_command)
app.command("explain")(explain_command)
app.command("check")(check_command)
app.command("bisect")(bisect_command)
app.command("diff")(diff_command)
app.command("doctor")(doctor_command)
app.add_typer(passes_app, name="passes")
app.add_typer(bench_app, name="bench")


def _print_version(wanted: bool) -> None:
    if wanted:
        from dsv41c import __version__

        print(f"dsv41c {__version__}")
        raise typer.Exit()


@app.callback()
def _dsv41c(
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Show the traceback of an internal error.")] = False,
    version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True,
                                          help="Print the version and exit.")] = False,
) -> None:
    """Compile DeepSeek-V4.1-Flash checkpoints ahead of time and run the artifacts."""


def main() -> None:
    """Never returns: ends the process with an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Whatever the locale says, text and JSON are UTF-8; what UTF-8 cannot hold (a file name, say) is escaped.
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    sys.exit(_flushed(run(sys.argv[1:])))


def _flushed(code: int) -> int:
    """An answer that could not be written is no success: the disk behind stdout may be full."""
    try:
        if sys.stdout is None:
            raise OSError("stdout is closed")
        sys.stdout.flush()
    except BrokenPipeError:
        sys.stdout = None  # the reader has had enough; nothing is left to flush at exit
        return code
    except (OSError, ValueError) as error:
        return code or _unwritten(error)
    return code


def _unwritten(error: Exception) -> int:
    sys.stdout = None
    print(f"the output cannot be written: {error}", file=sys.stderr)
    return MEMORY


def run(arguments: list[str]) -> int:
    """Exit code of one command line. Usage errors, --help and Ctrl-C arrive here as SystemExit from Typer."""
    try:
        app(arguments)
    except SystemExit as end:
        if type(sys.stdout).__name__ == "PacifyFlushWrapper":
            return 0  # click's mark of a reader that has closed stdout, which it ends with 1
        return end.code if isinstance(end.code, int) else INTERNAL
    except Dsv41cError as error:
        return _report(error, arguments)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return 0  # whoever reads stdout has closed it
    except OSError as error:
        # Files are written and read under typed errors; what is left is stdout on a full disk.
        return _unwritten(error) if error.errno in (errno.ENOSPC, errno.EDQUOT) else _report_internal(error, arguments)
    except MemoryError:
        print("out of memory", file=sys.stderr)
        return MEMORY
    except Exception as error:
        return _report_internal(error, arguments)
    return 0


def _report(error: Dsv41cError, arguments: list[str]) -> int:
    """stdout stays empty, so that whoever parses it never mistakes an error for a result."""
    print(json.dumps(error.to_json()) if "--json" in arguments else str(error), file=sys.stderr)
    return error.exit_code


def _report_internal(error: Exception, arguments: list[str]) -> int:
    if any(a in ("-v", "--verbose") for a in arguments):
        traceback.print_exception(error)
        return INTERNAL
    first = (str(error).strip() or "no message").splitlines()[0]
    print(f"internal error: {type(error).__name__}: {first}\n"
          f"  do      report it with the output of `dsv41c -v ...`", file=sys.stderr)
    return INTERNAL


if __name__ == "__main__":
    main()
