"""Cluster barriers: arrive counts a lane, wait holds it until all of the cluster have arrived."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gemm_lab.emulator.faults import LaunchFault
from gemm_lab.emulator.runtime.arrays import Array, any_of
from gemm_lab.emulator.runtime.groups import Site
from gemm_lab.emulator.runtime.masks import Mask
from gemm_lab.emulator.runtime.neighbours import Neighbours

__all__ = ["ClusterWait", "Clusters"]

REGISTERS = 65536


@dataclass(slots=True)
class ClusterWait:
    """Lanes wait for their cluster."""

    next: int
    site: Site


class Clusters(Neighbours):
    """barrier.cluster and setmaxnreg."""

    def _cluster_counts(self) -> tuple[Array, Array]:
        if self.cluster_arrivals is None:
            self.cluster_arrivals = np.zeros(self.shape, dtype=np.int32)
            self.cluster_waits = np.zeros(self.shape, dtype=np.int32)
        assert self.cluster_waits is not None
        return self.cluster_arrivals, self.cluster_waits

    def cluster_arrive(self, m: Mask | None, site: Site) -> None:
        """barrier.cluster.arrive"""
        arrivals, _ = self._cluster_counts()
        arrivals += 1 if m is None else m.full()
        if self.races is not None:
            self.races.cluster_arrive(self, m)
        self.barrier_version += 1

    def cluster_ready(self, lanes: Array) -> Array:
        """Which of the lanes [Ty, Tx, B] may leave their wait."""
        arrivals, waits = self._cluster_counts()
        alive = arrivals if self.dead is None else np.where(self.dead, 1 << 30, arrivals)
        least = alive.reshape(self.threads, -1, self.cluster_size).min(axis=(0, 2))
        by_block = np.repeat(least, self.cluster_size).reshape(1, 1, -1)
        ready: Array = lanes & (by_block > waits)
        return ready

    def cluster_passed(self, lanes: Array) -> None:
        """Lanes have left their wait."""
        _, waits = self._cluster_counts()
        waits += lanes
        self.block_waited(any_of(lanes.reshape(-1, self.B), 0), cluster=True)
        if self.races is not None:
            self.races.cluster_wait(self, lanes)

    def cluster_wait(self, m: Mask | None, after: int, site: Site) -> int | ClusterWait:
        """barrier.cluster.wait"""
        lanes = np.ones(self.shape, dtype=bool) if m is None else m.full()
        if (self.cluster_ready(lanes) == lanes).all():
            self.cluster_passed(lanes)
            return after
        return ClusterWait(after, site)

    def set_registers(self, count: int, m: Mask | None, site: Site) -> None:
        """setmaxnreg: the warps that said what they hold must fit the register file."""
        self.whole(m, site)
        active = self.active_warps(m).any(axis=1)
        if self.register_counts is None:
            self.register_counts = np.zeros((self.warps, self.B), dtype=np.int64)
        self.register_counts[active] = count
        total = int(self.register_counts.sum(axis=0).max()) * 32
        if not 24 <= count <= 256 or count % 8:
            raise LaunchFault(
                "setmaxnreg",
                f"{count} registers; 24 to 256 in steps of 8",
                where=self.where(site.ins),
            )
        if total > REGISTERS:
            raise LaunchFault(
                "setmaxnreg",
                f"the block's warps ask for {total} registers, there are {REGISTERS}",
                where=self.where(site.ins),
            )
