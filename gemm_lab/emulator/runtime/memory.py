"""One byte heap with an allocation table, guard gaps and fake 64-bit addresses."""

from __future__ import annotations

from bisect import bisect_right, insort
from dataclasses import dataclass
from typing import Any

import numpy as np

from gemm_lab.emulator.faults import LaunchFault, MemoryFault
from gemm_lab.emulator.runtime.arrays import DTYPES, Array

__all__ = ["ALIGNMENT_BYTES", "HEAP_BASE", "Buffer", "Memory", "Views"]

HEAP_BASE = 0x7F00_0000_0000
ALIGNMENT_BYTES = 256
GUARD_BYTES = 4096
VIEW_NAMES = ("u8", "i8", "i16", "u16", "f16", "i32", "u32", "f32", "i64", "u64", "f64")


class Views:
    """One run of bytes seen as each type.

    `words` marks memory kept in 32-bit words a lane or block, where 64-bit views make no sense.
    """

    __slots__ = ("f16", "f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "words")

    u8: Array
    i8: Array
    i16: Array
    u16: Array
    f16: Array
    i32: Array
    u32: Array
    f32: Array
    i64: Array
    u64: Array
    f64: Array

    def __init__(self, data: Array, *, words: bool = False) -> None:
        self.words = words
        for name in VIEW_NAMES:
            wide = name[1:] == "64"
            setattr(self, name, None if words and wide else data.view(DTYPES[name]))

    def get(self, name: str) -> Array:
        """The view of a type."""
        array: Array = getattr(self, name)
        return array


@dataclass(eq=False, slots=True)
class Buffer:
    """An allocation: `address` is what a kernel gets, `size_bytes` what was asked for."""

    name: str
    address: int
    size_bytes: int
    span_start: int
    span_bytes: int
    constant: bool = False
    free: bool = False

    @property
    def end(self) -> int:
        return self.address + self.size_bytes


class Memory:
    """Global memory: a reserved range whose pages the system hands out when they are touched.

    Allocations never touch each other, so a stray access lands in a gap. `limit_bytes` bounds
    what may be held at once.
    """

    def __init__(self, limit_bytes: int = 4 << 30) -> None:
        self.limit_bytes = limit_bytes
        while True:
            try:
                self.bytes: Array = np.zeros(limit_bytes, dtype=np.uint8)
                break
            except MemoryError:
                limit_bytes //= 2
                if limit_bytes < 1 << 20:
                    raise
        self.limit_bytes = limit_bytes
        self.views = Views(self.bytes)
        self._next = 0
        self._holes: list[tuple[int, int]] = []
        self._starts: list[int] = []
        self._buffers: dict[int, Buffer] = {}
        self.version = 0
        self.module_variables: dict[int, dict[str, Buffer]] = {}

    def alloc(
        self, size_bytes: int, *, name: str = "", misalign_bytes: int = 0, constant: bool = False
    ) -> Buffer:
        """Room for `size_bytes`, aligned to 256 bytes and then shifted by `misalign_bytes`."""
        if size_bytes < 0 or misalign_bytes < 0:
            raise LaunchFault("allocation", f"a size of {size_bytes} bytes")
        span = -(-(size_bytes + misalign_bytes + 1) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        span += GUARD_BYTES
        start = self._take(span)
        if start is None:
            raise LaunchFault(
                "out of memory",
                f"{size_bytes} bytes asked for, {self.limit_bytes - self._next} left",
                hint="free buffers or give Memory a higher limit_bytes",
            )
        address = HEAP_BASE + start + misalign_bytes
        label = name or f"buffer{len(self._buffers)}"
        buffer = Buffer(label, address, size_bytes, start, span, constant)
        insort(self._starts, HEAP_BASE + start)
        self._buffers[HEAP_BASE + start] = buffer
        self.version += 1
        return buffer

    @property
    def used_bytes(self) -> int:
        """End of the highest allocation, counted from the heap's base."""
        return self._next

    def _take(self, span: int) -> int | None:
        for at, (start, size) in enumerate(self._holes):
            if size >= span:
                if size == span:
                    del self._holes[at]
                else:
                    self._holes[at] = (start + span, size - span)
                self.bytes[start : start + span] = 0
                return start
        if self._next + span > self.limit_bytes:
            return None
        start = self._next
        self._next += span
        return start

    def free(self, buffer: Buffer) -> None:
        """Give the room back; later accesses are faults."""
        start = HEAP_BASE + buffer.span_start
        if buffer.free or self._buffers.get(start) is not buffer:
            raise LaunchFault("free", f"{buffer.name} is no live buffer")
        del self._buffers[start]
        self._starts.remove(start)
        buffer.free = True
        self.version += 1
        insort(self._holes, (buffer.span_start, buffer.span_bytes))
        merged: list[tuple[int, int]] = []
        for hole_start, size in self._holes:
            if merged and sum(merged[-1]) == hole_start:
                merged[-1] = (merged[-1][0], merged[-1][1] + size)
            else:
                merged.append((hole_start, size))
        self._holes = merged

    def find(self, address: int) -> Buffer | None:
        """The buffer whose bytes, padding not counted, hold an address."""
        buffer = self.nearest(address)
        return buffer if buffer and buffer.address <= address < buffer.end else None

    def nearest(self, address: int) -> Buffer | None:
        """The buffer that begins last before an address: whom a stray access ran past."""
        at = bisect_right(self._starts, address) - 1
        return self._buffers[self._starts[max(at, 0)]] if self._starts else None

    def buffers(self) -> list[Buffer]:
        """Live buffers by address."""
        return [self._buffers[start] for start in self._starts]

    def raw(self, buffer: Buffer) -> Array:
        """A buffer's bytes, as a writable uint8 view."""
        if buffer.free:
            raise MemoryFault("use after free", f"{buffer.name} was freed")
        start = buffer.address - HEAP_BASE
        return self.bytes[start : start + buffer.size_bytes]

    def upload(self, array: Array, *, name: str = "", misalign_bytes: int = 0) -> Buffer:
        """A new buffer with an array's bytes, C order."""
        source = np.ascontiguousarray(array)
        buffer = self.alloc(source.nbytes, name=name, misalign_bytes=misalign_bytes)
        self.write(buffer, source)
        return buffer

    def write(self, buffer: Buffer, array: Array) -> None:
        """Overwrite the beginning of a buffer with an array's bytes."""
        source = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        if source.size > buffer.size_bytes:
            raise LaunchFault("upload", f"{source.size} bytes into {buffer.size_bytes}")
        self.raw(buffer)[: source.size] = source

    def download(self, buffer: Buffer, dtype: Any, shape: tuple[int, ...]) -> Array:
        """A copy of a buffer's beginning as an array."""
        kind = np.dtype(dtype)
        size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
        if size > buffer.size_bytes:
            raise LaunchFault("download", f"{size} bytes out of {buffer.size_bytes}")
        out: Array = self.raw(buffer)[:size].copy().view(kind).reshape(shape)
        return out

    def string(self, address: int, limit: int = 4096) -> str:
        """A zero-terminated string; replacement characters where it is none."""
        buffer = self.find(address)
        if buffer is None:
            return "(null)"
        data = self.raw(buffer)[address - buffer.address :][:limit].tobytes()
        return data.split(b"\0")[0].decode("utf-8", "replace")
