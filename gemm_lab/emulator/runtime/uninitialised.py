"""Which words of shared memory have been written."""

from __future__ import annotations

import numpy as np

from gemm_lab.emulator.runtime.arrays import Array
from gemm_lab.emulator.runtime.blame import Blame
from gemm_lab.emulator.runtime.groups import Access, AccessGroup
from gemm_lab.emulator.runtime.masks import Mask

__all__ = ["Uninitialised"]


class Uninitialised(Blame):
    """Loads must find what was written; stores write it down."""

    def _track_shared(
        self, d: Array, low: int, end: int, a: Array, g: AccessGroup, m: Mask | None
    ) -> None:
        """Loads must find what was written; stores write it down."""
        gaps = self.smem_gaps
        if gaps is None:
            self.smem_rows_written = self.smem_written.all(axis=1)
            gaps = np.concatenate(([0], np.cumsum(~self.smem_rows_written)))
            self.smem_gaps = gaps
        if gaps[(end + 3) >> 2] == gaps[low >> 2]:
            return
        if g.unit >= 4:
            words = (d >> 2) + g.word_offsets()
            if self.smem_rows_written.take(words).all():
                return
        for access in g.accesses:
            at = (d + (access.offset - g.lo)) >> 2
            for word in range(max(1, access.size_bytes // 4)):
                self._track_word(at + word, a, access, g, m)

    def _track_word(
        self, at: Array, a: Array, access: Access, g: AccessGroup, m: Mask | None
    ) -> None:
        flat = at * self.B + self.block_row
        written = self.smem_written.reshape(-1)
        good = written.take(flat)
        if good.all():
            return
        if g.kind not in ("st", "cp"):
            bad = ~good
            if m is not None:
                bad = bad & m.array
            if bad.any():
                raise self.memory_fault("uninitialised", bad, a, access, g, m)
            return
        if m is not None:
            flat, active = np.broadcast_arrays(flat, m.array)
            flat = flat[active]
        written[flat] = True
        self.smem_gaps = None
