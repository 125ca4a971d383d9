"""Settings that CuPy reads once, at its import."""

from __future__ import annotations

import os
from pathlib import Path

from gemm_lab.jit.places import cache_directory, fallback_directory, writable

__all__ = ["prepare_cupy_environment"]


def prepare_cupy_environment() -> None:
    """Give CuPy a kernel cache that it can write, before `import cupy`.

    CuPy's own place is ~/.cupy/kernel_cache; where HOME is not writable it fails at the first
    kernel. A CUPY_CACHE_DIR that the user set stays.
    """
    if os.environ.get("CUPY_CACHE_DIR"):
        return
    own = Path(os.path.expanduser("~/.cupy/kernel_cache"))
    if own.is_absolute() and writable(own):
        return
    place = cache_directory() / "cupy"
    if not writable(place):
        place = fallback_directory() / "cupy"
    os.environ["CUPY_CACHE_DIR"] = str(place)
