"""`dsv41c doctor`: what this installation and this machine have; it writes nothing."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer

MISSING_PART = 1
_PACKAGES = ("torch", "numpy", "safetensors", "tokenizers", "typer", "rich")
_CPU_FEATURES = ("avx2", "fma")


@dataclass(frozen=True)
class Finding:
    """`state`: ok; problem, without which nothing runs here; absent, which only some uses need."""

    name: str
    state: str
    text: str
    facts: dict[str, Any]


def doctor_command(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")] = False,
) -> None:
    """Look at versions, libraries, CPU, CUDA driver and cache. Exit code 1 when a part that all need is missing."""
    probes: tuple[Callable[[], Finding], ...] = (_versions, _core, _c_interface, _aten, _cpu, _driver, _nvcc,
                                                  _cache)
    findings = [probe() for probe in probes]
    healthy = all(finding.state != "problem" for finding in findings)
    if as_json:
        parts = {f.name: {"state": f.state, "text": f.text, **f.facts} for f in findings}
        print(json.dumps({"schema_version": 1, "healthy": healthy, **parts}, ensure_ascii=False))
    else:
        for finding in findings:
            print(f"{finding.name:<9} {finding.state:<8} {finding.text}")
    raise typer.Exit(0 if healthy else MISSING_PART)


def _versions() -> Finding:
    from dsv41c import __version__

    found = {"dsv41c": __version__, "python": platform.python_version()}
    missing = []
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            missing.append(name)
    text = ", ".join(f"{name} {version}" for name, version in found.items())
    if missing:
        return Finding("versions", "problem", f"{text}; not installed: {', '.join(missing)}", {"found": found})
    return Finding("versions", "ok", text, {"found": found})


def _core() -> Finding:
    """The executor opens: its library is built and its own references resolve."""
    from dsv41c.runtime.library import core_library, library_path
    from dsv41c.runtime.plan.errors import Dsv41cError

    try:
        path = library_path("dsv41c_executor")
        core_library()
    except Dsv41cError as error:
        return Finding("executor", "problem", f"{error.subject}: {error.found}; {error.do}", {"path": None})
    except OSError as error:
        return Finding("executor", "problem", str(error), {"path": str(path)})
    return Finding("executor", "ok", str(path), {"path": str(path)})


def _c_interface() -> Finding:
    """What C programs build against."""
    from dsv41c.runtime.library import PUBLIC, installed_file
    from dsv41c.runtime.plan.errors import Dsv41cError

    try:
        path, directory = installed_file(f"lib/{PUBLIC}"), installed_file("lib/pkgconfig/dsv41c.pc").parent
    except Dsv41cError as error:
        return Finding("c_api", "absent", f"{error.subject}: {error.found}; {error.do}", {"path": None})
    return Finding("c_api", "ok", f"{path}, PKG_CONFIG_PATH={directory}",
                   {"path": str(path), "pkg_config_path": str(directory)})


def _aten() -> Finding:
    """The provider for ATen calls, built against the torch that is installed."""
    from dsv41c.runtime.aten import aten_provider
    from dsv41c.runtime.library import library_path
    from dsv41c.runtime.plan.errors import Dsv41cError

    try:
        path = library_path("dsv41c_aten")
        aten_provider()
    except Dsv41cError as error:
        text = f"{error.found}, needed {error.needed}; {error.do}"
        return Finding("aten", "problem", text, {"path": None, "matches_torch": False})
    except ImportError as error:
        return Finding("aten", "problem", f"torch: {error}", {"path": str(path), "matches_torch": False})
    return Finding("aten", "ok", f"{path}, built against this torch", {"path": str(path), "matches_torch": True})


def _cpu() -> Finding:
    """The kernels of the cpu provider need AVX2 and FMA on x86-64."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    flags = re.search(r"^flags\s*:(.*)$", text, re.MULTILINE)
    present = flags.group(1).split() if flags else []
    model = re.search(r"^model name\s*:\s*(.*)$", text, re.MULTILINE)
    missing = [name for name in _CPU_FEATURES if name not in present]
    facts = {"machine": platform.machine(), "cores": os.cpu_count(),
             "features": {name: name in present for name in _CPU_FEATURES}}
    name = model.group(1) if model else platform.machine()
    if missing:
        return Finding("cpu", "problem", f"{name}: lacks {' '.join(missing)}", facts)
    return Finding("cpu", "ok", f"{name}, {os.cpu_count()} cores, {' '.join(_CPU_FEATURES)}", facts)


def _driver() -> Finding:
    """Only artifacts for a CUDA target need it."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return Finding("cuda", "absent", f"no CUDA driver ({error}); artifacts for the cpu run", {"version": None})
    version, count = ctypes.c_int(0), ctypes.c_int(0)
    library.cuDriverGetVersion(ctypes.byref(version))
    status = library.cuInit(0) or library.cuDeviceGetCount(ctypes.byref(count))
    found = f"{version.value // 1000}.{version.value % 1000 // 10}"
    facts = {"version": found, "devices": count.value}
    if status != 0:
        return Finding("cuda", "absent", f"driver {found}, no device (cuInit gives {status})", facts)
    return Finding("cuda", "ok", f"driver {found}, {count.value} devices", facts)


def _nvcc() -> Finding:
    """Only `compile --target sm_90a|sm_100a` needs it."""
    path = shutil.which("nvcc")
    if path is None:
        return Finding("nvcc", "absent", "not on PATH; `compile --target cpu` works", {"path": None})
    return Finding("nvcc", "ok", path, {"path": path})


def _cache() -> Finding:
    """Only looked at: the compiler makes it when it first keeps something."""
    from dsv41c.compiler.kernels.cache_directory import cache_directory

    path = cache_directory()
    if path is None:
        return Finding("cache", "absent", "no home directory; kernels are not kept", {"path": None, "writable": False})
    nearest = next(folder for folder in (path, *path.parents) if folder.exists())
    writable = os.access(nearest, os.W_OK | os.X_OK)
    text = f"{path}{'' if path.exists() else ' (not made yet)'}{'' if writable else ', not writable'}"
    return Finding("cache", "ok" if writable else "absent", text, {"path": str(path), "writable": writable})
