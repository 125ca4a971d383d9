"""Where the cache lies, and what stands in when that cannot be written."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import tempfile
import threading
from pathlib import Path

__all__ = ["cache_directory", "fallback_directory", "made_fallback", "warn_once", "writable"]

_log = logging.getLogger("gemm_lab")
_lock = threading.Lock()
_fallback: Path | None = None
_warned = False


def cache_directory() -> Path:
    """GEMM_LAB_CACHE_DIR, else the platform's cache folder, else (no home) a temporary one."""
    if named := os.environ.get("GEMM_LAB_CACHE_DIR"):
        return Path(os.path.expanduser(named)).absolute()
    import platformdirs

    place = Path(platformdirs.user_cache_dir("gemm-lab", appauthor=False))
    if place.is_absolute():
        return place
    warn_once(
        "there is no home folder for the kernel cache; compiled kernels are kept until this "
        "process ends. Set GEMM_LAB_CACHE_DIR to a folder that can be written"
    )
    return fallback_directory()


def writable(directory: Path) -> bool:
    """Whether files can be made there, tried out: permission bits say nothing of root.

    Leaves nothing behind: a folder that does not exist yet is judged by what it would lie in.
    """
    place = next((p for p in (directory, *directory.parents) if os.path.lexists(p)), directory)
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(b"x")
            file.flush()
    except OSError:
        return False
    return True


def fallback_directory() -> Path:
    """A temporary cache folder of this process, removed when it ends."""
    global _fallback
    with _lock:
        if _fallback is None or not _fallback.is_dir():
            _fallback = Path(tempfile.mkdtemp(prefix="gemm-lab-"))
            atexit.register(_remove_own, _fallback, os.getpid())
        return _fallback


def made_fallback() -> Path | None:
    """The temporary folder if there is one by now."""
    return _fallback


def warn_once(text: str) -> None:
    """The one warning of a process that its cache is of no use; further ones are dropped."""
    global _warned
    with _lock:
        if _warned:
            return
        _warned = True
    _log.warning(text)


def _remove_own(folder: Path, pid: int) -> None:
    """A forked child must not take its parent's folder away."""
    if os.getpid() == pid:
        shutil.rmtree(folder, ignore_errors=True)
