"""CUDA's headers, handed to NVRTC in memory under one fixed name each.

`-I` would write the folder of the headers into the line table, and so into the cubin: two
checkouts would never agree. Every include that the header set can answer is rewritten to
"/gemm_lab/include/<name>" and its text passed along, so code and key depend on what a header
says and never on where it lies.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["HeaderSet", "IncludedSource", "included_names", "resolve_includes"]

VIRTUAL_ROOT = "/gemm_lab/include/"
BASE_HEADERS = ("cuda_fp16.h", "cuda_bf16.h", "cuda_fp8.h", "mma.h", "cooperative_groups.h")
MARKERS = (
    "cuda.h",
    *BASE_HEADERS,
    "cuda_fp16.hpp",
    "cuda_bf16.hpp",
    "cuda_fp8.hpp",
    "vector_types.h",
    "crt/mma.h",
    "crt/mma.hpp",
    "crt/host_defines.h",
)
_INCLUDE = re.compile(
    rb"""^(?P<directive>[ \t]*\#[ \t]*include[ \t]*)(?P<open>[<"])(?P<name>[^>"\n]+)[>"]""",
    re.MULTILINE | re.VERBOSE,
)
_VERSION = re.compile(rb"^#define CUDA_VERSION (\d+)", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class HeaderSet:
    """Folders of one CUDA release, searched in order. `origin` is a word for people."""

    origin: str
    folders: tuple[Path, ...]

    def find(self, name: str) -> Path | None:
        """The file that answers `#include <name>`."""
        for folder in self.folders:
            if (folder / name).is_file():
                return folder / name
        return None

    @property
    def version(self) -> tuple[int, int] | None:
        """(12, 9) from cuda.h; None where it cannot be told."""
        path = self.find("cuda.h")
        return _version(path, _date(path)) if path else None

    def digest(self) -> str:
        """Hash of what the headers that kernels include say, whole closure, 16 digits."""
        text = "".join(f"#include <{name}>\n" for name in BASE_HEADERS)
        found = resolve_includes(text, self)
        total = hashlib.sha256()
        for name, content in sorted(found.headers.items()):
            total.update(f"{name}\0{len(content)}\0".encode() + content)
        return total.hexdigest()[:16]

    def marker_files(self) -> Iterable[Path]:
        """Files whose date and size stand for the set."""
        return (path for name in MARKERS if (path := self.find(name)))


@dataclass(frozen=True, kw_only=True)
class IncludedSource:
    """Source with its includes rewritten, and the text of each header by that name."""

    source: str
    headers: dict[str, bytes]


def included_names(source: str) -> tuple[str, ...]:
    """What the source includes, in order, each once."""
    names = (m["name"].decode() for m in _INCLUDE.finditer(source.encode()))
    return tuple(dict.fromkeys(names))


def resolve_includes(source: str, header_set: HeaderSet) -> IncludedSource:
    """Take in every header that the source reaches; what is not found is left as it stands.

    NVRTC then says itself what it cannot open, and only where the preprocessor gets there.
    """
    text, waiting = _rewrite(source.encode(), (), header_set.folders)
    headers: dict[str, bytes] = {}
    while waiting:
        name, path = waiting.popitem()
        if VIRTUAL_ROOT + name not in headers:
            content, further = _header(path, _date(path), header_set.folders)
            headers[VIRTUAL_ROOT + name] = content
            waiting.update(further)
    return IncludedSource(source=text.decode(), headers=headers)


def _date(path: Path) -> tuple[int, int]:
    stat = path.stat()
    return stat.st_mtime_ns, stat.st_size


@functools.lru_cache(maxsize=256)
def _header(
    path: Path, date: tuple[int, int], folders: tuple[Path, ...]
) -> tuple[bytes, dict[str, Path]]:
    """Read and rewritten once; `date` makes an upgraded file another one."""
    return _rewrite(path.read_bytes(), (path.parent,), folders)


def _rewrite(
    text: bytes, beside: tuple[Path, ...], folders: tuple[Path, ...]
) -> tuple[bytes, dict[str, Path]]:
    """The text with virtual includes, and the files behind them by name in the set."""
    found: dict[str, Path] = {}

    def replace(match: re.Match[bytes]) -> bytes:
        quoted = match["open"] == b'"'
        for folder in (*beside, *folders) if quoted else folders:
            path = Path(os.path.normpath(folder / match["name"].decode()))
            name = _name_in_set(path, folders)
            if name and path.is_file():
                found[name] = path
                return match["directive"] + f'"{VIRTUAL_ROOT}{name}"'.encode()
        return match[0]

    return _INCLUDE.sub(replace, text), found


def _name_in_set(path: Path, folders: tuple[Path, ...]) -> str | None:
    for folder in folders:
        if path.is_relative_to(folder):
            return path.relative_to(folder).as_posix()
    return None


@functools.lru_cache(maxsize=16)
def _version(path: Path, date: tuple[int, int]) -> tuple[int, int] | None:
    found = _VERSION.search(path.read_bytes())
    return (int(found[1]) // 1000, int(found[1]) % 1000 // 10) if found else None
