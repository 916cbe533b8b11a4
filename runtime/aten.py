"""Opens the aten provider, which is linked against torch; nothing else of the runtime imports torch."""

from __future__ import annotations

import ctypes
import functools

from dsv41c.runtime.library import library_path
from dsv41c.runtime.plan.errors import Dsv41cError

_ADVICE = "run `make install` (it builds with --no-build-isolation, so that CMake sees torch)"


@functools.cache
def aten_provider() -> int:
    """Address of the provider's function table; E0702 with advice when it cannot serve."""
    path = library_path("dsv41c_aten")
    import torch  # its libraries are then in the process, and the provider's references find them

    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise _unusable(str(error), f"a provider that torch {torch.__version__} can load") from error
    version = library.dsv41c_aten_torch_version
    version.restype = ctypes.c_char_p
    built = version().decode()
    if built != torch.__version__:
        raise _unusable(f"built against torch {built}", f"torch {torch.__version__} of this environment")
    provider = library.dsv41c_aten_provider
    provider.restype = ctypes.c_void_p
    address: int = provider()
    return address


def _unusable(found: str, needed: str) -> Dsv41cError:
    return Dsv41cError("DSV41C-E0702", "libdsv41c_aten.so", found=found, needed=needed, do=_ADVICE)
