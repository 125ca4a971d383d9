"""The hooks through which watched code tells the race detector and the counters."""

from __future__ import annotations

import numpy as np

from gemm_lab.emulator.runtime.access import Base
from gemm_lab.emulator.runtime.arrays import Array
from gemm_lab.emulator.runtime.blame import Blame
from gemm_lab.emulator.runtime.groups import Site
from gemm_lab.emulator.runtime.masks import Mask

__all__ = ["Watching"]


class Watching(Blame):
    """Called from watched code only."""

    def seen(self, base: Base) -> None:
        """A group of accesses was checked and is about to happen."""
        if base.mask is not None and not base.mask.lanes:
            return
        if base.views is self.local:
            return
        shared = base.views is not self.heap
        if self.counters is not None:
            self.counters.access(self, base, shared)
        if self.races is not None:
            self.races.access(self, base, shared)

    def fence(self, m: Mask | None, site: Site) -> None:
        """A memory fence."""
        if self.races is not None:
            self.races.fence()

    def warp_sync(self, members: Array, m: Mask | None) -> None:
        """__syncwarp orders the accesses of a warp's lanes."""
        if self.races is not None:
            self.races.warp_sync(self, self.active_warps(m).any(axis=1))

    def thread_grid(self, value: Array) -> Array:
        """A register's values as [threads, B]."""
        return np.broadcast_to(value, self.shape).reshape(self.threads, self.B)
