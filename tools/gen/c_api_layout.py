"""Prints the layout of every struct of the C interface, one `struct.field offset size` a line, as a C compiler has it.

The layout of a released version is frozen under runtime/cpp/abi/: what comes later may only follow it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from c_header import HEADER, structs

FROZEN = Path(__file__).parents[2] / "runtime/cpp/abi/v1.txt"


def layout() -> list[str]:
    """Measured, not computed."""
    fields = [(block.name, name.strip(" *")) for block in structs(HEADER.read_text(encoding="utf-8"))
              for entry in block.entries
              for name in (entry.declaration.split(" ", 1)[1].split(",") if "(" not in entry.declaration
                           else [entry.name])]
    lines = [f'  print({struct}, {name.split(" ")[-1].strip("*")});' for struct, name in fields]
    program = "\n".join([
        "#include <dsv41c/dsv41c.h>", "#include <stdio.h>",
        '#define print(s, f) printf("%s.%s %zu %zu\\n", #s, #f, offsetof(s, f), sizeof(((s*)0)->f))',
        "int main(void) {", *lines, "  return 0;", "}", ""])
    with tempfile.TemporaryDirectory() as directory:
        source, binary = Path(directory, "layout.c"), Path(directory, "layout")
        source.write_text(program)
        subprocess.run(["cc", f"-I{HEADER.parents[1]}", str(source), "-o", str(binary)], check=True)
        return subprocess.run([str(binary)], capture_output=True, text=True, check=True).stdout.splitlines()


def main() -> int:
    print("\n".join(layout()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
