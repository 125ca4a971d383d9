"""Measurements in a file, a JSON object a line, that survives a kill at any byte.

A line goes out as one write to a file opened for appending and is synced before it counts as
kept. Several processes may append: a lock keeps their lines apart, and where a file system has
none, the single write does. A line that a kill or a full disk tore is never joined to the next:
whoever opens the file for writing moves it to FILE.torn first.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from gemm_lab.core.measurement import SCHEMA, Measurement, to_json
from gemm_lab.errors import GemmLabError, UsageError

__all__ = ["DamagedLine", "Journal", "JournalContent", "read_journal"]

_START = b'{"schema"'  # of every line
_PORTION = 2**20
_LONGEST_LINE = 2**24
_MOST_PIPED = 2**28
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)  # a pipe that nobody reads is told, not waited for
_FULL = {errno.ENOSPC, errno.EDQUOT}


@dataclass(frozen=True, kw_only=True)
class DamagedLine:
    """A line that is no measurement, and why; lines count from 1."""

    line: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class JournalContent:
    """All measurements of a file in its order, and the lines that could not be read."""

    measurements: tuple[Measurement, ...]
    damaged: tuple[DamagedLine, ...]


def read_journal(path: Path) -> JournalContent:
    """Read a file without touching it; UsageError when it is missing or holds something else.

    What `run --json` and `bench --json` print can be read too; "-" is stdin. A device is refused.
    """
    try:
        data = _read_file(path)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}",
            hint="give the file that `gemm-lab bench -o FILE` wrote",
        ) from None
    printed = _printed(data)
    if printed is not None:
        return JournalContent(measurements=printed, damaged=())
    return _parse(path, data)


class Journal:
    """A file of measurements, open for appending; what it held before is in `before`.

    What is no regular file (/dev/null, a pipe) holds nothing and only takes lines. UsageError when
    the file holds something else or cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.moved_aside = 0
        self.kept = 0
        self.before = JournalContent(measurements=(), damaged=())
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            new = not path.exists()
            self._plain = new or stat.S_ISREG(path.stat().st_mode) or path.is_dir()
            how = os.O_RDWR | os.O_APPEND | os.O_CREAT if self._plain else os.O_WRONLY | _NO_WAIT
            self._fd = os.open(path, how, 0o666)
        except OSError as error:
            raise UsageError(
                f"{path} cannot be written: {error.strerror}", hint="give another -o FILE"
            ) from None
        if not self._plain:
            os.set_blocking(self._fd, True)
            return
        try:
            if new:
                _sync_folder(path.parent)
            with _locked(self._fd):
                self.before = _parse(path, _read_all(self._fd, path))
                self.kept = len(self.before.measurements)
                self._mend()
        except OSError as error:
            os.close(self._fd)
            raise self._not_kept(error) from error
        except GemmLabError:
            os.close(self._fd)
            raise

    def append(self, measurement: Measurement) -> None:
        """Write one line and wait until it is on disk.

        GemmLabError when it cannot be kept; the file then ends with the line before it.
        """
        line = to_json(measurement.to_dict()).encode() + b"\n"
        try:
            if self._plain:
                with _locked(self._fd):
                    self._mend()
                    self._write(line, os.fstat(self._fd).st_size)
            else:
                while line:
                    line = line[os.write(self._fd, line) :]
        except OSError as error:
            raise self._not_kept(error) from error
        self.kept += 1

    def close(self) -> None:
        """Let go of the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def _write(self, line: bytes, start: int) -> None:
        try:
            written = os.write(self._fd, line)
            if written != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._fd)
        except OSError:
            # Half a line must not stay; should this fail too, the next opening sees to it.
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, start)
            raise

    def _mend(self) -> None:
        """Move a torn last line aside, or end it when only its newline is missing; locked."""
        size = os.fstat(self._fd).st_size
        if size == 0 or os.pread(self._fd, 1, size - 1) == b"\n":
            return
        start, tail = _last_line(self._fd, size)
        if _measurement(tail) is not None:
            os.write(self._fd, b"\n")
            return
        aside = self.path.with_name(self.path.name + ".torn")
        # It holds nothing that can be read: on a full disk it may go.
        with contextlib.suppress(OSError), aside.open("ab") as file:
            file.write(tail + b"\n")
        os.ftruncate(self._fd, start)
        os.fsync(self._fd)
        self.moved_aside += 1

    def _not_kept(self, error: OSError) -> GemmLabError:
        kept = f"{self.kept} measurements are kept in {self.path}"
        if error.errno in _FULL:
            return GemmLabError(
                f"the disk is full: {kept}, the last one is not",
                hint="free some space and repeat the command; it goes on where it stopped",
            )
        return GemmLabError(
            f"{self.path} cannot be written: {error.strerror}; {kept}, the last one is not",
            hint="mend that and repeat the command, or give another -o FILE",
        )


def _parse(path: Path, data: bytes) -> JournalContent:
    found: list[Measurement] = []
    damaged: list[DamagedLine] = []
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line.strip():
            continue
        measurement = _measurement(line)
        if measurement is None:
            damaged.append(DamagedLine(line=number, reason=_reason(line)))
        else:
            found.append(measurement)
    # One torn line is a first run that was killed; anything else is somebody's own file.
    torn = b"\n" not in data and data[: len(_START)] == _START[: len(data)]
    if damaged and not found and not torn and _START not in data:
        raise UsageError(
            f"{path} is no journal of measurements: line {damaged[0].line} {damaged[0].reason}",
            hint="give a new file, or one that `gemm-lab bench -o FILE` wrote",
        )
    return JournalContent(measurements=tuple(found), damaged=tuple(damaged))


def _printed(data: bytes) -> tuple[Measurement, ...] | None:
    """The measurements of one JSON document over several lines; None when it is no such thing."""
    if not data.startswith(b"{\n"):
        return None
    try:
        document: Any = json.loads(data)
        several = document.get("measurements")
        return tuple(map(Measurement.from_dict, [document] if several is None else several))
    except (ValueError, TypeError, OverflowError, AttributeError, RecursionError):
        return None


def _measurement(line: bytes) -> Measurement | None:
    try:
        data: Any = json.loads(line)
        return Measurement.from_dict(data) if isinstance(data, dict) else None
    except (ValueError, TypeError, OverflowError, AttributeError, RecursionError):
        return None


def _reason(line: bytes) -> str:
    try:
        data: Any = json.loads(line)
    except (ValueError, RecursionError):
        return "is no JSON"
    if isinstance(data, dict) and isinstance(data.get("schema"), int) and data["schema"] > SCHEMA:
        return f"has schema {data['schema']}, this version reads up to {SCHEMA}"
    return "is no measurement"


def _read_file(path: Path) -> bytes:
    if str(path) == "-":
        return _gathered(sys.stdin.buffer.read, path, most=_MOST_PIPED)
    with path.open("rb") as file:
        mode = os.fstat(file.fileno()).st_mode
        if stat.S_ISREG(mode):
            return _gathered(file.read, path)
        if stat.S_ISFIFO(mode):
            return _gathered(file.read, path, most=_MOST_PIPED)
    raise UsageError(f"{path} is no regular file", hint="a file, a pipe, or - for stdin")


def _read_all(fd: int, path: Path) -> bytes:
    os.lseek(fd, 0, os.SEEK_SET)
    return _gathered(lambda size: os.read(fd, size), path)


def _gathered(read: Callable[[int], bytes], path: Path, *, most: int | None = None) -> bytes:
    """Everything; UsageError as soon as a line, or the whole, is longer than measurements are."""
    data = bytearray()
    line = 0  # bytes since the last newline
    while part := read(_PORTION):
        data += part
        newline = part.rfind(b"\n")
        line = line + len(part) if newline < 0 else len(part) - newline - 1
        if line > _LONGEST_LINE or (most is not None and len(data) > most):
            what, limit = ("a line", _LONGEST_LINE) if line > _LONGEST_LINE else ("it", most or 0)
            raise UsageError(
                f"{path} is no journal of measurements: {what} has more than {limit >> 20} MiB",
                hint="give the file that `gemm-lab bench -o FILE` wrote",
            )
    return bytes(data)


def _last_line(fd: int, size: int) -> tuple[int, bytes]:
    """Where the last line begins, and its bytes."""
    start, tail = size, b""
    while start > 0:
        step = min(start, 2**16)
        part = os.pread(fd, step, start - step)
        cut = part.rfind(b"\n")
        if cut >= 0:
            return start - step + cut + 1, part[cut + 1 :] + tail
        tail = part + tail
        start -= step
    return 0, tail


def _sync_folder(folder: Path) -> None:
    """Make the name of a new file last; not every system lets a folder be synced."""
    with contextlib.suppress(OSError):
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


@contextlib.contextmanager
def _locked(fd: int) -> Iterator[None]:
    """Hold the file's lock where the system and the file system have one."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
    except OSError:
        yield
        return
    try:
        yield
    finally:
        fcntl.flock(fd, fcntl.LOCK_UN)
