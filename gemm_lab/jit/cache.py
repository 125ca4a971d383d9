"""The kernel cache on disk: one folder a kernel, written beside and renamed whole.

    <root>/<name>-<hash16>/kernel.cu .ptx .cubin .json
    <root>/toolchain-<hash16>.json           what the compiler says of itself
    <root>/tmp-*, bad-*                      on the way in, on the way out

There are no locks. A reader trusts an entry only if the checksum of each file holds; a writer
that comes second takes the first one's entry; a process that dies leaves a tmp folder, which
`prune` and `clear` sweep after an hour.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path

from gemm_lab.errors import CompileError
from gemm_lab.jit.entry import BAD, CachedKernel, read_entry, write_entry
from gemm_lab.jit.places import (
    cache_directory,
    fallback_directory,
    made_fallback,
    warn_once,
    writable,
)

__all__ = ["Cache", "CacheEntry", "CacheInfo", "PruneResult", "default_cache"]

LEFTOVER_S = 3600.0
_ENTRY = re.compile(r"(?P<variant>.+)-(?P<hash>[0-9a-f]{16})$")

_log = logging.getLogger("gemm_lab")


@dataclass(frozen=True, kw_only=True)
class CacheEntry:
    """One kernel on disk; age since it was last used."""

    variant: str
    hash: str
    arch: str
    size_bytes: int
    age_s: float
    path: Path


@dataclass(frozen=True, kw_only=True)
class CacheInfo:
    """The cache as a whole."""

    directory: Path
    writable: bool
    entry_count: int
    size_bytes: int
    leftover_count: int


@dataclass(frozen=True, kw_only=True)
class PruneResult:
    """What a sweep took away."""

    entry_count: int
    freed_bytes: int


class Cache:
    """Compiled kernels under one folder; None is the folder that the environment names.

    Nothing is written, and no folder made, before the first kernel is put.
    """

    def __init__(self, directory: str | os.PathLike[str] | None = None) -> None:
        self.directory = Path(directory).absolute() if directory else cache_directory()

    def get(self, name: str, key: str) -> CachedKernel | None:
        """The entry of that key; None if there is none. A bad one is moved away."""
        for root in (self.directory, made_fallback()):
            if root is None:
                continue
            folder = root / entry_name(name, key)
            try:
                entry = read_entry(folder, key)
            except BAD as error:
                if os.path.lexists(folder):
                    self._discard_bad(folder, key, str(error))
            except OSError:
                # Too many open files, say: no word on the entry, which others may be using.
                continue
            else:
                # The date of the last use is what prune goes by; a read-only cache keeps its own.
                with contextlib.suppress(OSError):
                    os.utime(folder / "kernel.json")
                return entry
        return None

    def has(self, name: str, key: str) -> bool:
        """Whether there is a folder of that key; its content is not looked at."""
        return (self.directory / entry_name(name, key) / "kernel.json").is_file()

    def put(self, name: str, key: str, kernel: CachedKernel) -> CachedKernel:
        """Keep the kernel and return it with its folder; the other's entry if it was faster.

        Where the cache cannot be written, a temporary folder of this process takes it.
        """
        try:
            return self._put(self.directory, name, key, kernel)
        except OSError as error:
            warn_once(
                f"the kernel cache {self.directory} cannot be written ({error.strerror or error}); "
                "compiled kernels are kept until this process ends. Set GEMM_LAB_CACHE_DIR to a "
                "folder that can be written"
            )
        try:
            return self._put(fallback_directory(), name, key, kernel)
        except OSError as error:
            raise CompileError(
                f"there is no place to write the compiled kernel: {error}",
                hint="make room, or set GEMM_LAB_CACHE_DIR or TMPDIR to a folder with some",
            ) from error

    def _put(self, root: Path, name: str, key: str, kernel: CachedKernel) -> CachedKernel:
        root.mkdir(parents=True, exist_ok=True)
        beside = root / passage_name("tmp")
        folder = root / entry_name(name, key)
        try:
            write_entry(beside, key, kernel)
            # Twice: an entry in the way that is not good is moved off once, then ours goes in.
            for _ in range(2):
                try:
                    os.rename(beside, folder)
                except OSError:
                    if not os.path.lexists(folder):
                        raise
                else:
                    return replace(kernel, folder=folder)
                with contextlib.suppress(*BAD):
                    return read_entry(folder, key)
                self._discard_bad(folder, key, "not a whole entry")
            raise FileExistsError(f"{folder} is in the way")
        finally:
            shutil.rmtree(beside, ignore_errors=True)

    def _discard_bad(self, folder: Path, key: str, why: str) -> None:
        """Move the entry away; look again before and after, since another process may just have
        put a good one in its place."""
        with contextlib.suppress(OSError, *BAD):
            read_entry(folder, key)
            return
        away = folder.parent / passage_name("bad")
        try:
            os.rename(folder, away)
        except OSError:
            return
        with contextlib.suppress(OSError, *BAD):
            read_entry(away, key)
            os.rename(away, folder)
            return
        _log.info("cache entry %s is bad (%s) and will be built anew", folder.name, why)
        _remove(away)

    def entries(self) -> list[CacheEntry]:
        """Every entry, most recently used first."""
        found = []
        now = time.time()
        for folder in self._children():
            match = _ENTRY.match(folder.name)
            if not match or not any(folder.glob("kernel.*")):
                continue
            try:
                document = json.loads((folder / "kernel.json").read_bytes())
                used = (folder / "kernel.json").stat().st_mtime
                arch = str(document["arch"])
            except (OSError, ValueError, KeyError, TypeError):
                used, arch = _modified(folder), ""
            found.append(
                CacheEntry(
                    variant=match["variant"],
                    hash=match["hash"],
                    arch=arch,
                    size_bytes=_size(folder),
                    age_s=max(0.0, now - used),
                    path=folder,
                )
            )
        return sorted(found, key=lambda entry: entry.age_s)

    def info(self) -> CacheInfo:
        """Where the cache is, what it holds."""
        entries = self.entries()
        return CacheInfo(
            directory=self.directory,
            writable=writable(self.directory),
            entry_count=len(entries),
            size_bytes=sum(entry.size_bytes for entry in entries),
            leftover_count=sum(1 for _ in self._leftovers(0.0)),
        )

    def clear(self) -> PruneResult:
        """Remove every entry and note, and what dead processes left; nothing else."""
        result = self.prune(older_than_s=-1.0)
        for note in self._children():
            if re.fullmatch(r"toolchain-[0-9a-f]{16}\.json", note.name):
                with contextlib.suppress(OSError):
                    note.unlink()
        return result

    def prune(
        self, *, max_bytes: int | None = None, older_than_s: float | None = None
    ) -> PruneResult:
        """Remove entries not used for `older_than_s`, then the oldest down to `max_bytes`."""
        for leftover in self._leftovers(LEFTOVER_S):
            _remove(leftover)
        doomed, kept_bytes = [], 0
        for entry in self.entries():
            kept_bytes += entry.size_bytes
            too_old = older_than_s is not None and entry.age_s > older_than_s
            too_much = max_bytes is not None and kept_bytes > max_bytes
            if too_old or too_much:
                kept_bytes -= entry.size_bytes
                doomed.append(entry)
        count = freed = 0
        for entry in doomed:
            away = self.directory / passage_name("bad")
            with contextlib.suppress(OSError):
                os.rename(entry.path, away)
                _remove(away)
                count, freed = count + 1, freed + entry.size_bytes
        return PruneResult(entry_count=count, freed_bytes=freed)

    def _children(self) -> list[Path]:
        try:
            return sorted(self.directory.iterdir())
        except OSError:
            return []

    def _leftovers(self, age_s: float) -> list[Path]:
        """Folders in passage that are older than `age_s`."""
        limit = time.time() - age_s
        return [
            path
            for path in self._children()
            if re.match(r"(tmp|bad)-(\d+|note)-", path.name) and _modified(path) <= limit
        ]


def entry_name(name: str, key: str) -> str:
    """<name>-<hash16>"""
    return f"{name}-{key[:16]}"


def passage_name(kind: str) -> str:
    """A folder name that nobody else uses: on the way in (tmp) or out (bad)."""
    return f"{kind}-{os.getpid()}-{os.urandom(6).hex()}"


def default_cache() -> Cache:
    """The cache of the environment as it is now."""
    return Cache()


def _modified(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return time.time()


def _size(folder: Path) -> int:
    total = 0
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            total += entry.stat().st_size
    return total


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()
