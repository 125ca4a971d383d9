"""The hooks through which watched code tells the race detector and the counters."""

from __future__ import annotations

from gemm_lab.emulator.runtime.access import Accesses, Base
from gemm_lab.emulator.runtime.arrays import Array
from gemm_lab.emulator.runtime.groups import Site
from gemm_lab.emulator.runtime.masks import Mask
from gemm_lab.emulator.tensor.fragments import PER_REGISTER, MmaGrid

__all__ = ["Watching"]


class Watching(Accesses):
    """Called from watched code only."""

    def seen(self, base: Base) -> None:
        """A group of accesses was checked and is about to happen."""
        if base.mask is not None and not base.mask.lanes:
            return
        if base.views is self.local or base.remote:
            return
        shared = base.views is not self.heap
        if self.counters is not None:
            self.counters.access(self, base, shared)
        if self.races is not None:
            self.races.access(self, base, shared)

    def seen_copy(self, base: Base) -> None:
        """The global side of an asynchronous copy: requests of their own, and a read."""
        if base.mask is not None and not base.mask.lanes:
            return
        if self.counters is not None:
            self.counters.copy(self, base)
        if self.races is not None:
            self.races.access(self, base, shared=False)

    def count_mma(self, grid: MmaGrid, m: Mask | None, site: Site) -> None:
        """A run of mma instructions."""
        if self.counters is not None:
            warps = (
                self.warps * self.B if m is None else int(self.active_warps(m).any(axis=1).sum())
            )
            per = PER_REGISTER[grid.kind_a]
            flop = 2 * 16 * 8 * 4 * per * grid.chunks * len(grid.pairs)
            self.counters.bump(site.ins, "tensor_flop", flop * warps)

    def fence(self, m: Mask | None, site: Site) -> None:
        """A memory fence."""
        if self.races is not None:
            self.races.fence()

    def proxy_fence(self, m: Mask | None, site: Site) -> None:
        """fence.proxy.async: ordinary accesses before it are seen by asynchronous ones after it."""
        if self.races is not None:
            self.races.proxy_fence(self, self.active_warps(m).any(axis=1))

    def warp_sync(self, members: Array, m: Mask | None) -> None:
        """__syncwarp orders the accesses of a warp's lanes."""
        if self.races is not None:
            self.races.warp_sync(self, self.active_warps(m).any(axis=1))
