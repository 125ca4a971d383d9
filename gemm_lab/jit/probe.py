"""What the toolchain says of itself, remembered by date and size of its files.

The cache key needs the exact NVRTC build (12.9.86) and the identity of the headers. NVRTC tells
its build only in PTX that it wrote, and hashing the headers takes ten milliseconds. So both are
asked once and kept in the cache folder; a warm process reads one small file and loads no
compiler. The answer belongs to path, inode, size and date of every file concerned: an upgrade
makes another one.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gemm_lab.errors import CompileError
from gemm_lab.jit.headers import HeaderSet
from gemm_lab.jit.nvrtc import Nvrtc, load_nvrtc
from gemm_lab.jit.toolchain import Library, find_header_sets, find_libraries, wheel_advice

__all__ = ["Toolchain", "find_toolchain", "probe_library", "select_headers"]

SCHEMA = 1
NO_HEADERS = "none"


@dataclass(frozen=True, kw_only=True)
class Toolchain:
    """The compiler and headers that one process uses.

    Attributes:
        nvrtc_version: exact build, "12.9.86".
        arch_numbers: what it compiles for, without suffix.
        header_set: identity for key and report, "12.9-<digest>"; "none" where there is none.
    """

    library: Library
    headers: HeaderSet | None
    nvrtc_version: str
    arch_numbers: tuple[int, ...]
    header_set: str

    def nvrtc(self) -> Nvrtc:
        """Load the compiler."""
        return load_nvrtc(self.library.path)


def find_toolchain(notes: Path | None = None) -> Toolchain:
    """Choose library and headers; `notes` is the folder where answers are kept.

    CompileError when no NVRTC is installed.
    """
    libraries = find_libraries()
    if not libraries:
        raise CompileError(
            "NVRTC, CUDA's run-time compiler, is not installed", hint=wheel_advice(12)
        )
    library = libraries[0]
    headers = select_headers(library)
    stamp = _stamp(library, headers)
    known = _read_note(notes, stamp)
    if known is None:
        known = _answers.get(stamp) or probe_library(library, headers)
        _write_note(notes, stamp, known)
    _answers[stamp] = known
    return Toolchain(
        library=library,
        headers=headers,
        nvrtc_version=known.nvrtc_version,
        arch_numbers=known.arch_numbers,
        header_set=known.header_set,
    )


@dataclass(frozen=True, kw_only=True)
class ProbeAnswer:
    """What had to be asked."""

    nvrtc_version: str
    arch_numbers: tuple[int, ...]
    header_set: str


_answers: dict[str, ProbeAnswer] = {}


def probe_library(library: Library, headers: HeaderSet | None) -> ProbeAnswer:
    """Load the library, compile an empty program for its build, hash the headers."""
    try:
        nvrtc = load_nvrtc(library.path)
        numbers = nvrtc.arch_numbers()
        output = nvrtc.compile(
            "",
            program_name="/gemm_lab/probe.cu",
            options=(f"--gpu-architecture=compute_{numbers[-1]}",),
        )
    except (OSError, RuntimeError, AttributeError) as error:
        raise CompileError(
            f"NVRTC cannot be used: {library.path}: {error}", hint=wheel_advice(library.major)
        ) from error
    build = re.search(r"release [\d.]+, V([\d.]+)", output.ptx)
    version = build[1] if build else ".".join(map(str, nvrtc.version()))
    return ProbeAnswer(
        nvrtc_version=version, arch_numbers=numbers, header_set=header_identity(headers)
    )


def header_identity(headers: HeaderSet | None) -> str:
    """Release and content, no path."""
    if headers is None:
        return NO_HEADERS
    release = ".".join(map(str, headers.version or ())) or "unknown"
    return f"{release}-{headers.digest()}"


@functools.lru_cache(maxsize=8)
def select_headers(library: Library) -> HeaderSet | None:
    """The set of the library's generation that is most like it: same origin, then wheels."""
    sets = find_header_sets(library.major)
    if not sets:
        return None
    return min(sets, key=lambda s: s.origin.split()[-1] != library.origin.split()[-1])


def _stamp(library: Library, headers: HeaderSet | None) -> str:
    """Path, inode, size and date of every file that the answer depends on."""
    files = [library.path.resolve(), *(headers.marker_files() if headers else ())]
    parts = []
    for path in files:
        stat = path.stat()
        parts.append(f"{path}|{stat.st_ino}|{stat.st_size}|{stat.st_mtime_ns}")
    text = f"{SCHEMA}\n" + "\n".join(parts)
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()


def _note_path(notes: Path, stamp: str) -> Path:
    return notes / f"toolchain-{stamp[:16]}.json"


def _read_note(notes: Path | None, stamp: str) -> ProbeAnswer | None:
    if notes is None:
        return None
    try:
        data: Any = json.loads(_note_path(notes, stamp).read_bytes())
        answer = ProbeAnswer(
            nvrtc_version=str(data["nvrtc_version"]),
            arch_numbers=tuple(int(n) for n in data["arch_numbers"]),
            header_set=str(data["header_set"]),
        )
        return answer if data["check"] == _check(stamp, answer) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write_note(notes: Path | None, stamp: str, answer: ProbeAnswer) -> None:
    """A note that cannot be kept costs the next process a probe and nothing else."""
    if notes is None:
        return
    data = json.dumps({**asdict(answer), "check": _check(stamp, answer)})
    with contextlib.suppress(OSError):
        notes.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix="tmp-note-", dir=notes)
        try:
            with os.fdopen(handle, "w", encoding="ascii") as file:
                file.write(data)
            os.replace(name, _note_path(notes, stamp))
        except OSError:
            os.unlink(name)
            raise


def _check(stamp: str, answer: ProbeAnswer) -> str:
    text = f"{stamp}{answer.nvrtc_version}{answer.arch_numbers}{answer.header_set}"
    return hashlib.sha256(text.encode()).hexdigest()
