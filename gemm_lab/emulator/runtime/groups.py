"""Accesses of a basic block that share a base register: checked once, indexed once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gemm_lab.emulator.ptx.ir import Instr
from gemm_lab.emulator.runtime.arrays import Array

__all__ = ["Access", "AccessGroup", "Site"]


@dataclass(frozen=True, slots=True)
class Site:
    """An instruction that may fault: its number in the program and itself."""

    number: int
    ins: Instr


@dataclass(frozen=True, slots=True)
class Access:
    """One access of a group: byte offset from the base, bytes a lane, and who asks."""

    offset: int
    size_bytes: int
    site: Site


@dataclass(slots=True)
class AccessGroup:
    """Accesses [base + offset] with one alignment.

    Attributes:
        kind: "ld", "st" or "atom". space: "global", "shared", "local" or "generic".
        unit: bytes of an element; align: bytes that each access must be aligned to.
        lo, hi: lowest offset, highest offset plus its size.
    """

    kind: str
    space: str
    unit: int
    align: int
    accesses: list[Access]
    lo: int = 0
    hi: int = 0
    shift: int = 0
    _words: Array | None = None

    def word_offsets(self) -> Array:
        """Every word of every access, counted from the lowest, as [n, 1, 1, 1]."""
        if self._words is None:
            offsets = {
                (access.offset - self.lo + byte) >> 2
                for access in self.accesses
                for byte in range(0, access.size_bytes, 4)
            }
            self._words = np.array(sorted(offsets), dtype=np.int64).reshape(-1, 1, 1, 1)
        return self._words

    def finish(self) -> None:
        """Set the extents once all accesses are known."""
        self.lo = min(access.offset for access in self.accesses)
        self.hi = max(access.offset + access.size_bytes for access in self.accesses)
        self.shift = self.unit.bit_length() - 1
