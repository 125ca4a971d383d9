"""Blocks of a cluster that reach into each other: after all have begun, before any has left.

CUDA promises neither without a barrier of the cluster, and this emulator runs blocks side by
side, where the omission would never show.
"""

from __future__ import annotations

import numpy as np

from gemm_lab.emulator.faults import BarrierFault
from gemm_lab.emulator.runtime.arrays import Array
from gemm_lab.emulator.runtime.groups import Site
from gemm_lab.emulator.runtime.uninitialised import Uninitialised

__all__ = ["Neighbours"]


class Neighbours(Uninitialised):
    """Who has met its cluster, who was last reached, who has waited since."""

    def remote_use(self, lane: Array, block: Array, site: Site) -> None:
        """Lanes reach for shared memory or an mbarrier of these blocks."""
        home = lane % self.B
        other = home != block
        if not other.any():
            return
        lane, block, home = lane[other], block[other], home[other]
        early = ~self.met_cluster[home]
        if early.any():
            self._apart(
                "before any barrier of the cluster: that block may not have begun",
                "barrier.cluster.arrive and wait (cluster.sync()) in every block come first",
                int(lane[early.argmax()]), site,
            )  # fmt: skip
        if self.dead is not None:
            gone = np.all(self.dead.reshape(self.threads, self.B), axis=0, keepdims=True)[0, block]
            if gone.any():
                self._apart(
                    "that has left already",
                    "end with a barrier of the cluster in every block",
                    int(lane[gone.argmax()]), site,
                )  # fmt: skip
        self.remote_sequence += 1
        self.last_reached[block] = self.remote_sequence
        self.last_reach = (int(lane[-1]), site)

    def _apart(self, what: str, hint: str, lane: int, site: Site) -> None:
        raise BarrierFault(
            "cluster", f"{site.ins.opcode} reaches for another block of the cluster {what}",
            hint=hint, **self.blame_lane(lane, site),
        )  # fmt: skip

    def block_waited(self, blocks: Array, *, cluster: bool) -> None:
        """Some lanes of these blocks [B] have passed a barrier."""
        if self.cluster_size > 1:
            self.remote_sequence += 1
            self.last_waited[blocks] = self.remote_sequence
            if cluster:
                self.met_cluster |= blocks

    def check_departures(self) -> None:
        """At the end: a block that was reached must have waited for something since."""
        bad = self.last_reached > self.last_waited
        if self.races is not None:
            self.races.check_stores(self)
        if self.last_reach is not None and bad.any():
            lane, site = self.last_reach
            block = self.block_of(int(np.flatnonzero(bad)[0]))
            raise BarrierFault(
                "cluster",
                f"block {block} leaves with no barrier after another block's {site.ins.opcode} "
                "has reached for it, and may be gone by then",
                hint="end with a barrier of the cluster in every block",
                **self.blame_lane(lane, site),
            )
