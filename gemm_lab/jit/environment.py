"""Settings that CuPy reads once, at its import."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from gemm_lab.jit.cache import cache_directory, fallback_directory, writable

__all__ = ["prepare_cupy_environment"]


def prepare_cupy_environment() -> None:
    """Give CuPy a kernel cache that it can write, before `import cupy`.

    CuPy's own place is ~/.cupy/kernel_cache; where HOME is not writable it fails at the first
    kernel. A CUPY_CACHE_DIR that the user set stays.
    """
    if os.environ.get("CUPY_CACHE_DIR"):
        return
    if writable(Path(os.path.expanduser("~/.cupy/kernel_cache"))):
        return
    place = cache_directory() / "cupy"
    if not writable(place):
        place = fallback_directory() / "cupy"
    os.environ["CUPY_CACHE_DIR"] = str(place)
    # CuPy compiles in a temporary folder too; a TMPDIR that is gone would stop it later.
    tempfile.gettempdir()
