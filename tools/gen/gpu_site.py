"""Copies what the tests need besides torch and numpy from this environment to build/gpu/site; asks no package index."""

from __future__ import annotations

import argparse
import shutil
from importlib import metadata
from pathlib import Path

SITE = Path(__file__).parents[2] / "build/gpu/site"
# Of pure Python or with the stable ABI, so that another version of Python runs them. The tests marked gpu need no more:
# Hypothesis, which is compiled for one version, is used by other folders only.
PACKAGES = ("pytest", "pluggy", "iniconfig", "packaging", "pygments", "nlohmann_json", "safetensors")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=SITE)
    output = parser.parse_args().output
    size = sum(copy_package(name, output) for name in PACKAGES)
    print(f"{len(PACKAGES)} packages, {size / 1e6:.1f} MB in {output}")
    return 0


def copy_package(name: str, output: Path) -> int:
    """Bytes of the files that the package installed inside site-packages."""
    distribution, size = metadata.distribution(name), 0
    files = [file for file in distribution.files or () if ".." not in file.parts and "__pycache__" not in file.parts]
    compiled = [str(file) for file in files if file.suffix == ".so" and not file.name.endswith(".abi3.so")]
    if compiled:
        raise SystemExit(f"{name} {distribution.version} is compiled for one version of Python: {compiled[0]}")
    for file in files:
        target = output / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(Path(str(distribution.locate_file(file))), target)
        size += target.stat().st_size
    return size


if __name__ == "__main__":
    raise SystemExit(main())
