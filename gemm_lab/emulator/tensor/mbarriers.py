"""mbarrier objects: arrivals, transaction bytes, phases. PTX ISA, "mbarrier".

State is kept beside shared memory, by 8-byte slot and block. A phase ends when no arrival is
pending and no byte is expected; then the next begins with the count that `init` gave.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gemm_lab.emulator.faults import BarrierFault, MemoryFault
from gemm_lab.emulator.runtime.arrays import Array, any_of
from gemm_lab.emulator.runtime.groups import Site
from gemm_lab.emulator.runtime.machine import REMOTE_MASK, REMOTE_SHIFT
from gemm_lab.emulator.runtime.masks import Mask
from gemm_lab.emulator.runtime.watch import Watching

__all__ = ["MbarrierWait", "Mbarriers"]


@dataclass(slots=True)
class Targets:
    """Barriers that active lanes name: slot, block and lane, one an active lane."""

    slot: Array
    block: Array
    lane: Array


@dataclass(slots=True)
class MbarrierWait:
    """Lanes wait for a phase. `slot` and `phase` are [Ty, Tx, B]; `register` receives true."""

    ready: Array
    slot: Array
    parity: Array
    token: bool
    next: int
    register: int
    site: Site


class Mbarriers(Watching):
    """Barriers in shared memory."""

    def _barriers(self) -> Any:
        if self.mbarriers is None:
            size = (max(1, -(-self.smem_bytes // 8)), self.B)
            self.mbarriers = {
                "valid": np.zeros(size, dtype=bool),
                "count": np.zeros(size, dtype=np.int64),
                "pending": np.zeros(size, dtype=np.int64),
                "bytes": np.zeros(size, dtype=np.int64),
                "phase": np.zeros(size, dtype=np.int64),
            }
        return self.mbarriers

    def shared_targets(self, a: Array, m: Mask | None) -> tuple[Array, Array, Array]:
        """(byte offset, block, lane) that active lanes name; remote addresses are resolved."""
        lane = self.lane_ids.reshape(-1) if m is None else self.lane_ids[m.full()]
        at = np.broadcast_to(a, self.shape).reshape(-1)[lane].astype(np.int64)
        block: Array = lane % self.B
        rank = at >> REMOTE_SHIFT
        if rank.any():
            size = self.cluster_size
            block = np.where(rank > 0, block // size * size + rank - 1, block)
            at = at & REMOTE_MASK
        return at, block, lane

    def _targets(self, a: Array, m: Mask | None, site: Site, *, fresh: bool = False) -> Targets:
        at, block, lane = self.shared_targets(a, m)
        bad = (at < 0) | (at + 8 > self.smem_bytes) | ((at & 7) != 0)
        if bad.any():
            first = int(bad.argmax())
            kind = "misaligned" if at[first] & 7 else "out of bounds"
            raise MemoryFault(
                kind,
                f"an mbarrier at {int(at[first]):#x}; the block has {self.smem_bytes} bytes",
                address=int(at[first]),
                **self.blame_lane(int(lane[first]), site),
            )
        slot = at >> 3
        if self.cluster_size > 1:
            self.remote_use(lane, block, site)
        state = self._barriers()
        if self.races is not None:
            own = lane % self.B == block
            use = self.races.mbarrier_init if fresh else self.races.mbarrier_use
            use(self, slot[own], block[own], lane[own], site)
        if not fresh:
            dead = ~state["valid"][slot, block]
            if dead.any():
                self._barrier_fault(
                    "mbarrier", "used before mbarrier.init", int(lane[dead.argmax()]), site
                )
        return Targets(slot, block, lane)

    def _barrier_fault(self, kind: str, message: str, lane: int, site: Site) -> None:
        raise BarrierFault(kind, message, **self.blame_lane(lane, site))

    def mbarrier_init(self, a: Array, count: Array, m: Mask | None, site: Site) -> None:
        """mbarrier.init"""
        t = self._targets(a, m, site, fresh=True)
        counts = np.broadcast_to(count, self.shape).reshape(-1)[t.lane].astype(np.int64)
        if len(counts) and (counts.min() < 1 or counts.max() >= 1 << 20):
            self._barrier_fault("mbarrier count", "it must be 1 to 2^20 - 1", int(t.lane[0]), site)
        state = self._barriers()
        state["valid"][t.slot, t.block] = True
        state["count"][t.slot, t.block] = counts
        state["pending"][t.slot, t.block] = counts
        state["bytes"][t.slot, t.block] = 0
        state["phase"][t.slot, t.block] = 0

    def mbarrier_inval(self, a: Array, m: Mask | None, site: Site) -> None:
        """mbarrier.inval"""
        t = self._targets(a, m, site)
        self._barriers()["valid"][t.slot, t.block] = False

    def mbarrier_expect(self, a: Array, size: Array, m: Mask | None, site: Site) -> None:
        """mbarrier.expect_tx: more bytes belong to this phase."""
        t = self._targets(a, m, site)
        sizes = np.broadcast_to(size, self.shape).reshape(-1)[t.lane].astype(np.int64)
        np.add.at(self._barriers()["bytes"], (t.slot, t.block), sizes)

    def mbarrier_arrive(
        self, a: Array, count: Array, m: Mask | None, site: Site, drop: bool = False
    ) -> Array:
        """mbarrier.arrive: the phase in which each lane arrived, as its state, int64."""
        t = self._targets(a, m, site)
        state = self._barriers()
        out = np.zeros(self.lanes, dtype=np.int64)
        out[t.lane] = state["phase"][t.slot, t.block]
        counts = np.broadcast_to(count, self.shape).reshape(-1)[t.lane].astype(np.int64)
        if drop:
            np.subtract.at(state["count"], (t.slot, t.block), counts)
        if self.races is not None:
            self.races.mbarrier_arrive(self, t.slot, t.block, t.lane)
        key = t.slot * self.B + t.block
        places, inverse = np.unique(key, return_inverse=True)
        total = np.bincount(inverse, weights=counts, minlength=len(places)).astype(np.int64)
        self._arrive(places // self.B, places % self.B, total, t, inverse, site)
        return out.reshape(self.shape)

    def _arrive(
        self, slot: Array, block: Array, total: Array, t: Targets, inverse: Array, site: Site
    ) -> None:
        state = self._barriers()
        while True:
            before = total
            take = np.minimum(total, state["pending"][slot, block])
            state["pending"][slot, block] -= take
            total = total - take
            self._complete(slot, block)
            if not total.any():
                return
            stuck = (total > 0) & (state["pending"][slot, block] == 0)
            stuck |= (total > 0) & (total < before)
            if stuck.any():
                lane = int(t.lane[(inverse == int(stuck.argmax())).argmax()])
                self._barrier_fault(
                    "mbarrier overflow",
                    "more arrivals than the phase expects; the rest fall into the next",
                    lane,
                    site,
                )

    def _complete(self, slot: Array, block: Array) -> None:
        """End the phases that wait for nothing any more."""
        state = self._barriers()
        over = (state["pending"][slot, block] == 0) & (state["bytes"][slot, block] == 0)
        if over.any():
            slot, block = slot[over], block[over]
            state["phase"][slot, block] += 1
            state["pending"][slot, block] = state["count"][slot, block]
            self.barrier_version += 1
            if self.races is not None:
                self.races.mbarrier_complete(slot, block)

    def complete_bytes(self, slot: Array, block: Array, size: Array) -> None:
        """Bytes of asynchronous copies have landed. PTX ISA: "complete-tx"."""
        np.subtract.at(self._barriers()["bytes"], (slot, block), size)
        places = np.unique(slot * self.B + block)
        self._complete(places // self.B, places % self.B)

    # ---- waiting ----
    def phase_over(self, slot: Array, parity: Array, token: bool) -> Array:
        """Whether the phase of each lane has ended; slot and parity are [Ty, Tx, B]."""
        phase = self._barriers()["phase"][slot, np.broadcast_to(self.block_row, slot.shape)]
        over: Array = phase != parity if token else (phase & 1) != (parity & 1)
        return over

    def _wait_facts(
        self, a: Array, parity: Array, m: Mask | None, site: Site
    ) -> tuple[Array, Array]:
        t = self._targets(a, m, site)
        slot = np.zeros(self.lanes, dtype=np.int64)
        slot[t.lane] = t.slot
        return slot.reshape(self.shape), np.broadcast_to(parity, self.shape).astype(np.int64)

    def try_wait(
        self,
        a: Array,
        parity: Array,
        token: bool,
        m: Mask | None,
        after: int,
        register: int,
        registers: list[Any],
        site: Site,
    ) -> int | MbarrierWait:
        """mbarrier.try_wait as a wait without end: lanes go on when their phase is over."""
        slot, wanted = self._wait_facts(a, parity, m, site)
        ready = self.phase_over(slot, wanted, token)
        if m is not None:
            ready = ready & m.full()
        if int(np.count_nonzero(ready)) == (self.lanes if m is None else m.lanes):
            self.passed_phase(slot, m, register, registers)
            return after
        return MbarrierWait(ready, slot, wanted, token, after, register, site)

    def passed_phase(
        self, slot: Array, m: Mask | None, register: int, registers: list[Any]
    ) -> None:
        """Lanes have seen a phase end: their register says so."""
        if register >= 0:
            old = registers[register]
            true = np.ones((1, 1, 1), dtype=bool)
            registers[register] = true if m is None or old is None else old | m.array
        if self.cluster_size > 1:
            blocks = np.ones(self.B, bool) if m is None else any_of(m.full().reshape(-1, self.B), 0)
            self.block_waited(blocks, cluster=False)
        if self.races is not None:
            self.races.mbarrier_wait(self, slot, m)

    def test_wait(self, a: Array, parity: Array, token: bool, m: Mask | None, site: Site) -> Array:
        """mbarrier.test_wait: the state now."""
        slot, wanted = self._wait_facts(a, parity, m, site)
        over = self.phase_over(slot, wanted, token)
        array = over if m is None else over & m.array
        if self.cluster_size > 1:
            blocks = any_of(np.broadcast_to(array, self.shape).reshape(-1, self.B), 0)
            self.block_waited(blocks, cluster=False)
        if self.races is not None and array.any():
            self.races.mbarrier_wait(self, slot, Mask(array, self.shape))
        return over

    def mbarrier_copies(self, a: Array, noinc: bool, m: Mask | None, site: Site) -> None:
        """cp.async.mbarrier.arrive: this lane's copies land, then it arrives."""
        self.copies_done(m)
        one = np.ones((1, 1, 1), dtype=np.int64)
        if not noinc:
            t = self._targets(a, m, site)
            np.add.at(self._barriers()["pending"], (t.slot, t.block), 1)
        self.mbarrier_arrive(a, one, m, site)

    def copies_done(self, m: Mask | None) -> None:
        """All cp.async of these lanes have landed."""
        raise NotImplementedError
