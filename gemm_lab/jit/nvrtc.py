"""NVRTC's C interface, by ctypes: the one place that loads the compiler.

A dozen functions, stable since CUDA 11. Loading the library by the path that we found keeps the
cache key and the compiler the same thing, releases the GIL in every call, and imports in
milliseconds where a binding package takes a tenth of a second.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Nvrtc", "NvrtcOutput", "load_nvrtc"]

SUCCESS = 0
INVALID_OPTION = 5


@dataclass(frozen=True, kw_only=True)
class NvrtcOutput:
    """What one compilation gave. `status` is NVRTC's own code; 0 is success."""

    status: int
    status_text: str
    cubin: bytes
    ptx: str
    log: str
    lowered_names: Mapping[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether there is machine code."""
        return self.status == SUCCESS

    @property
    def invalid_option(self) -> bool:
        """Whether it refused an option, and never looked at the source."""
        return self.status == INVALID_OPTION


class Nvrtc:
    """A loaded NVRTC library. Safe to use from several threads."""

    def __init__(self, path: Path) -> None:
        if sys.platform == "win32":
            os.add_dll_directory(str(path.parent))
        self.path = path
        self._lib = ctypes.CDLL(os.fspath(path))
        self._lib.nvrtcGetErrorString.restype = ctypes.c_char_p

    def version(self) -> tuple[int, int]:
        """(12, 9); the exact build is in the header of any PTX that it writes."""
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._check(self._lib.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
        return major.value, minor.value

    def arch_numbers(self) -> tuple[int, ...]:
        """Every architecture that this NVRTC compiles for, as numbers, rising."""
        count = ctypes.c_int()
        self._check(self._lib.nvrtcGetNumSupportedArchs(ctypes.byref(count)))
        numbers = (ctypes.c_int * count.value)()
        self._check(self._lib.nvrtcGetSupportedArchs(numbers))
        return tuple(sorted(numbers))

    def compile(
        self,
        source: str,
        *,
        program_name: str,
        options: Sequence[str],
        headers: Mapping[str, bytes] | None = None,
        names: Sequence[str] = (),
    ) -> NvrtcOutput:
        """Compile; the log comes back whether it succeeds or not.

        `headers` are texts by the exact name with which they are included. `names` are C++ names
        of entries: templates are instantiated for them, and `lowered_names` tells the mangled ones.
        """
        headers = headers or {}
        count = len(headers)
        texts = (ctypes.c_char_p * count)(*headers.values())
        included = (ctypes.c_char_p * count)(*(name.encode() for name in headers))
        flags = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        program = ctypes.c_void_p()
        self._check(
            self._lib.nvrtcCreateProgram(
                ctypes.byref(program),
                ctypes.c_char_p(source.encode()),
                ctypes.c_char_p(program_name.encode()),
                ctypes.c_int(count),
                texts,
                included,
            )
        )
        try:
            for name in names:
                expression = ctypes.c_char_p(name.encode())
                self._check(self._lib.nvrtcAddNameExpression(program, expression))
            status = self._lib.nvrtcCompileProgram(program, ctypes.c_int(len(options)), flags)
            log = self._fetch(program, "ProgramLog")
            done = status == SUCCESS
            return NvrtcOutput(
                status=status,
                status_text=self._text(status),
                cubin=self._fetch(program, "CUBIN") if done else b"",
                ptx=_text(self._fetch(program, "PTX")) if done else "",
                log=_text(log),
                lowered_names={n: self._lowered(program, n) for n in names} if done else {},
            )
        finally:
            self._lib.nvrtcDestroyProgram(ctypes.byref(program))

    def _lowered(self, program: ctypes.c_void_p, name: str) -> str:
        found = ctypes.c_char_p()
        expression = ctypes.c_char_p(name.encode())
        self._check(self._lib.nvrtcGetLoweredName(program, expression, ctypes.byref(found)))
        return (found.value or b"").decode()

    def _fetch(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._check(getattr(self._lib, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
        if not size.value:
            return b""
        buffer = ctypes.create_string_buffer(size.value)
        self._check(getattr(self._lib, f"nvrtcGet{what}")(program, buffer))
        return buffer.raw

    def _text(self, status: int) -> str:
        text: bytes | None = self._lib.nvrtcGetErrorString(ctypes.c_int(status))
        return (text or b"unknown error").decode()

    def _check(self, status: int) -> None:
        if status != SUCCESS:
            raise RuntimeError(f"NVRTC: {self._text(status)}")


def _text(data: bytes) -> str:
    """Up to the closing zero."""
    return data.split(b"\0", 1)[0].decode(errors="replace")


_loaded: dict[Path, Nvrtc] = {}
_lock = threading.Lock()


def load_nvrtc(path: Path) -> Nvrtc:
    """The library at `path`, loaded once a process; OSError when it cannot be."""
    with _lock:
        if path not in _loaded:
            _loaded[path] = Nvrtc(path)
        return _loaded[path]
