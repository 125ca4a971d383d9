"""The race detector through asynchronous copies, mbarriers, wgmma and the proxies.

Who moves data on its own counts as a unit beside the warps: one for the copies of each of a few
mbarriers, one for bulk stores, one for each warpgroup's products. What is still in flight carries
a clock that nobody knows yet, so that every access of it is a race until it is waited for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gemm_lab.emulator.faults import BarrierFault
from gemm_lab.emulator.global_races import GlobalRaces
from gemm_lab.emulator.race_log import RaceLog
from gemm_lab.emulator.races import PENDING, Pattern, RaceDetector
from gemm_lab.emulator.runtime.arrays import Array, any_of
from gemm_lab.emulator.runtime.context import Context
from gemm_lab.emulator.runtime.groups import Site
from gemm_lab.emulator.runtime.masks import Mask
from gemm_lab.emulator.tensor.async_copy import Copy
from gemm_lab.emulator.tensor.wgmma import Flight

__all__ = ["AsyncRaceDetector"]

BARRIER_UNITS = 14


@dataclass(slots=True)
class BulkRead:
    """Granules that a bulk store still reads; `group` is None until committed."""

    flat: Array
    block: int
    thread: int
    site: Site
    group: int | None = None


class AsyncRaceDetector(RaceDetector):
    """Adds units that are no warps, and knowledge that passes through mbarriers."""

    def __init__(self, x: Context, log: RaceLog, world: GlobalRaces, granule_bytes: int) -> None:
        groups = -(-x.threads // 128)
        self.bulk_unit = x.warps + BARRIER_UNITS
        self.wgmma_unit = self.bulk_unit + 1
        super().__init__(x, log, world, granule_bytes, extra_units=BARRIER_UNITS + 1 + groups)
        self.fence_seen = np.zeros_like(self.known)
        self.init_clock: Array | None = None
        self.arrived: dict[Any, Array] = {}
        self.done: dict[Any, Array] = {}
        self.issuer: dict[int, int] = {}
        self.bulk_reads: list[BulkRead] = []
        self.bulk_groups: dict[tuple[int, int], int] = {}
        self.flight_reads: dict[int, list[tuple[int, Array, Array]]] = {}

    def thread_name(self, thread: int) -> int:
        """The thread behind a unit: itself, or who issued the operation."""
        return self.issuer.get(thread // 32, thread % 32 if thread // 32 >= self.warps else thread)

    def _granules(self, words: Array) -> Array:
        per = 4 // self.granule
        if per == 1:
            return words
        spread = words[..., None] * per + np.arange(per)
        return spread.reshape(*words.shape[:-1], -1)

    # ---- cp.async ----
    def _copy_pattern(self, x: Context, copy: Copy, mask: Mask | None) -> Pattern:
        base = copy.base
        kept, base.mask = base.mask, mask
        mask_key = None if mask is None else mask.array.tobytes()
        key = ("cp", id(base.group), base.bytes.shape, base.bytes.tobytes(), mask_key)
        pattern = self.memo.get(key)
        if pattern is None:
            pattern = self.memo[key] = self._pattern(x, base)
        base.mask = kept
        site = base.group.accesses[0].site
        self.log.instrs[site.number] = site.ins
        return pattern

    def async_issue(self, x: Context, copy: Copy) -> None:
        """A cp.async begins: its bytes belong to nobody until its wait."""
        pattern = self._copy_pattern(x, copy, copy.mask)
        self.write(x, pattern, atomic=False)
        self.write_clock[pattern.flat] = PENDING

    def async_done(self, x: Context, copy: Copy, mask: Mask | None) -> None:
        """Its wait: from now on it is an ordinary write of its thread."""
        pattern = self._copy_pattern(x, copy, mask)
        mine = self.write_thread[pattern.flat] == pattern.thread
        flat = pattern.flat[mine]
        self.write_clock[flat] = self.clock[pattern.warp[mine], pattern.block[mine]]
        self.writes += 1

    # ---- mbarriers ----
    def mbarrier_init(self, x: Context, slot: Array, block: Array, lane: Array, site: Site) -> None:
        """mbarrier.init: a write that every other thread's use must come after."""
        if self.init_clock is None:
            size = (max(1, -(-x.smem_bytes // 8)), self.blocks)
            self.init_clock = np.zeros(size, dtype=np.int32)
            self.init_thread = np.zeros(size, dtype=np.int32)
            self.init_pc = np.zeros(size, dtype=np.int32)
        thread = lane // x.B
        self.log.instrs[site.number] = site.ins
        self.init_clock[slot, block] = self.clock[thread // 32, block]
        self.init_thread[slot, block] = thread
        self.init_pc[slot, block] = site.number

    def mbarrier_use(self, x: Context, slot: Array, block: Array, lane: Array, site: Site) -> None:
        """A use that nothing orders after mbarrier.init."""
        if self.init_clock is None or not len(slot):
            return
        thread = lane // x.B
        owner = self.init_thread[slot, block]
        clock = self.init_clock[slot, block]
        bad = (clock > self.known[thread // 32, owner // 32, block]) & (owner != thread)
        if bad.any():
            self.log.instrs[site.number] = site.ins
            flat = slot * 8 // self.granule * x.B + block
            pc = np.full(len(flat), site.number, dtype=np.int32)
            pattern = Pattern(flat, block, thread, thread // 32, pc)
            self.report(x, "write-read", pattern, bad, self.init_pc[slot, block], owner)

    def _own(self, warp: int | Array, block: int | Array) -> Array:
        """What a unit knows, its own present included: [units] or [n, units]."""
        known = self.known[warp, :, block].copy()
        if known.ndim == 1:
            known[warp] = self.clock[warp, block]
        else:
            known[np.arange(len(known)), warp] = self.clock[warp, block]
        return known

    def _store(self, store: dict[Any, Array], key: Any) -> Array:
        if key not in store:
            store[key] = np.zeros((self.units, self.blocks), dtype=np.int32)
        return store[key]

    def mbarrier_arrive(self, x: Context, slot: Array, block: Array, lane: Array) -> None:
        """Warps give what they know to a barrier of their block."""
        home, warp = lane % x.B, lane // x.B // 32
        own = home == block
        rows = np.unique(np.stack([slot[own], warp[own], block[own]]), axis=1).T
        warps = np.zeros((self.units, self.blocks), dtype=bool)
        for number, unit, at in rows.tolist():
            store = self._store(self.arrived, number)
            store[:, at] = np.maximum(store[:, at], self._own(unit, at))
            warps[unit, at] = True
        self._bump(warps)

    def _bump(self, units: Array) -> None:
        """A new interval of units [units, B]; lanes of a warp learn nothing of each other."""
        self.clock = (self.clock + units).astype(np.int32)
        self.epoch += 1

    def mbarrier_complete(self, slot: Array, block: Array) -> None:
        """A phase is over: who waits for it may learn."""
        for number, at in zip(slot.tolist(), block.tolist(), strict=True):
            arrived = self._store(self.arrived, number)
            done = self._store(self.done, number)
            done[:, at] = np.maximum(done[:, at], arrived[:, at])

    def mbarrier_wait(self, x: Context, slot: Array, m: Mask | None) -> None:
        """Warps have seen a phase end."""
        lanes = np.ones((x.threads, x.B), bool) if m is None else m.full().reshape(x.threads, x.B)
        slots = slot.reshape(x.threads, x.B)
        for number in np.unique(slots[lanes]).tolist():
            done = self.done.get(number)
            if done is None:
                continue
            warps = any_of(x.by_warp(lanes & (slots == number)), 1)
            self._learn(warps, done)
        self.epoch += 1

    def _learn(self, warps: Array, told: Array) -> None:
        """Raise what warps [warps, B] know to what [units, B] tells, no interval begun."""
        part = self.known[: self.warps]
        self.known[: self.warps] = np.where(
            warps[:, None], np.maximum(part, told[None]), part
        ).astype(np.int32)

    def cluster_arrive(self, x: Context, m: Mask | None) -> None:
        """barrier.cluster.arrive"""
        warps = any_of(x.active_warps(m), 1)
        joined = self._joined(self.as_units(warps))
        store = self._store(self.arrived, "cluster")
        np.maximum(store, joined, out=store)
        self._bump(self.as_units(warps))

    def cluster_wait(self, x: Context, lanes: Array) -> None:
        """barrier.cluster.wait"""
        warps = any_of(x.by_warp(lanes.reshape(x.threads, x.B)), 1)
        self.learn(warps, self._store(self.arrived, "cluster"))

    def proxy_fence(self, x: Context, warps: Array) -> None:
        """fence.proxy.async: what these warps know is seen by asynchronous accesses."""
        units = self.as_units(warps)
        own = self.known.copy()
        index = np.arange(self.units)
        own[index, index] = self.clock
        self.fence_seen = np.where(units[:, None], own, self.fence_seen).astype(np.int32)
        self._bump(units)

    # ---- TMA ----
    def bulk_write(
        self, x: Context, words: Array, blocks: Array, slots: Array, lanes: Array, site: Site
    ) -> None:
        """A copy into shared memory, ordered by the barrier at `slots`."""
        self.log.instrs[site.number] = site.ins
        granules = self._granules(words)
        for block, slot, lane in zip(blocks.tolist(), slots.tolist(), lanes.tolist(), strict=True):
            unit = self.warps + slot % BARRIER_UNITS
            thread = lane // x.B
            self.issuer[unit] = thread
            mine = lane % x.B == block
            if mine:
                told = self._own(thread // 32, block)
                self.known[unit, :, block] = np.maximum(self.known[unit, :, block], told)
            self.clock[unit, block] += 1
            count = len(granules)
            pattern = Pattern(
                granules * x.B + block,
                np.full(count, block),
                np.full(count, unit * 32),
                np.full(count, unit),
                np.full(count, site.number, dtype=np.int32),
            )
            if mine:
                self._check_bulk_write(x, pattern, thread, block)
                self.write(x, pattern, atomic=False)
            else:
                # Another block's readers told this copy's issuer through barriers not followed.
                self.write_clock[pattern.flat] = self.clock[unit, block]
                self.write_thread[pattern.flat] = unit * 32
                self.write_pc[pattern.flat] = site.number
                self.write_atomic[pattern.flat] = False
                self.writes += 1
            store = self._store(self.arrived, slot)
            store[:, block] = np.maximum(store[:, block], self._own(unit, block))

    def _check_bulk_write(self, x: Context, p: Pattern, thread: int, block: int) -> None:
        """What `write` cannot see: an earlier copy of the same unit, and the proxies."""
        warp, unit = thread // 32, int(p.warp[0])
        clock, writer = self.write_clock[p.flat], self.write_thread[p.flat]
        source = writer // 32
        bad = (source == unit) & (clock > self.known[warp, unit, block]) & (clock > 0)
        if bad.any():
            self.report(x, "write-write", p, bad, self.write_pc[p.flat], writer)
        ordered = (clock > 0) & (clock <= self.known[warp, source, block])
        bad = ordered & (source < self.warps) & ~self._fenced(clock, source, warp, block)
        if bad.any():
            self.report(x, "missing proxy fence", p, bad, self.write_pc[p.flat], writer)

    def _fenced(self, clock: Array, source: Array, warp: int, block: int) -> Array:
        """Whether writers or the issuing warp have fenced the proxies since those writes."""
        by_writer = clock <= self.fence_seen[source, source, block]
        fenced: Array = by_writer | (clock <= self.fence_seen[warp, source, block])
        return fenced

    def _async_read(
        self, x: Context, flat: Array, block: int, thread: int, unit: int, site: Site
    ) -> None:
        """An asynchronous read of granules: written before, fenced, in flight from now on."""
        self.log.instrs[site.number] = site.ins
        warp = thread // 32
        clock, writer = self.write_clock[flat], self.write_thread[flat]
        source = writer // 32
        count = len(flat)
        pattern = Pattern(
            flat,
            np.full(count, block),
            np.full(count, thread),
            np.full(count, warp),
            np.full(count, site.number, dtype=np.int32),
        )
        late = (clock > self.known[warp, source, block]) & (clock > 0)
        bad = late & ((writer != thread) | (clock == PENDING))
        if bad.any():
            self.report(x, "write-read", pattern, bad, self.write_pc[flat], writer)
        ordinary = (source < self.warps) & (clock > 0) & ~bad
        bad = ordinary & ~self._fenced(clock, source, warp, block)
        if bad.any():
            self.report(x, "missing proxy fence", pattern, bad, self.write_pc[flat], writer)
        self.read_clock[flat, unit] = PENDING
        self.read_thread[flat, unit] = unit * 32
        self.read_pc[flat, unit] = site.number
        self.issuer[unit] = thread

    def bulk_read(self, x: Context, words: Array, blocks: Array, lanes: Array, site: Site) -> None:
        """A bulk store reads shared memory."""
        for row, lane in enumerate(lanes.tolist()):
            block, thread = int(blocks[row, 0]), lane // x.B
            flat = self._granules(words[row]) * x.B + block
            self._async_read(x, flat, block, thread, self.bulk_unit, site)
            self.bulk_reads.append(BulkRead(flat, block, thread, site))

    def _issuers(self, x: Context, m: Mask | None) -> set[tuple[int, int]]:
        lanes = x.lane_ids.reshape(-1) if m is None else x.lane_ids[m.full()]
        return {(lane // x.B, lane % x.B) for lane in lanes.tolist()}

    def bulk_commit(self, x: Context, m: Mask | None) -> None:
        """A bulk group of each thread is closed."""
        for thread, block in self._issuers(x, m):
            number = self.bulk_groups.get((thread, block), 0)
            for read in self.bulk_reads:
                if read.group is None and (read.thread, read.block) == (thread, block):
                    read.group = number
            self.bulk_groups[thread, block] = number + 1

    def bulk_wait(self, x: Context, pending: int, m: Mask | None) -> None:
        """All but a thread's latest groups have read what they store."""
        if not self.bulk_reads:
            return
        waiting = self._issuers(x, m)
        kept = []
        for read in self.bulk_reads:
            key = (read.thread, read.block)
            limit = self.bulk_groups.get(key, 0) - pending
            if key not in waiting or read.group is None or read.group >= limit:
                kept.append(read)
                continue
            unit = self.bulk_unit
            self._landed(read.flat, unit, read.block, [read.thread // 32])
        self.bulk_reads = kept
        self.epoch += 1

    def check_stores(self, x: Context) -> None:
        """At the end: shared memory must live until bulk stores have read it.

        Where a race was found, it says more.
        """
        for read in [] if self.log.races() else self.bulk_reads:
            raise BarrierFault(
                "bulk store",
                "a block leaves while a bulk store may still read its shared memory",
                hint="the thread that issued it: cp.async.bulk.commit_group, then "
                "cp.async.bulk.wait_group.read 0",
                **x.blame_lane(read.thread * x.B + read.block, read.site),
            )

    def _landed(self, flat: Array, unit: int, block: int, warps: list[int]) -> None:
        """Reads of a unit are over, and these warps know it."""
        now = self.clock[unit, block]
        self.read_clock[flat, unit] = now
        for warp in warps:
            self.known[warp, unit, block] = now
        self.clock[unit, block] += 1

    # ---- wgmma ----
    def wgmma_read(self, x: Context, flight: Flight, site: Site) -> None:
        """Operands in shared memory are read until the group is waited for."""
        records = []
        for read in flight.reads:
            unit = self.wgmma_unit + read.group
            for block in read.blocks.tolist():
                flat = self._granules(read.words) * x.B + block
                self._async_read(x, flat, block, read.group * 128, unit, site)
                records.append((read.group, flat, np.array(block)))
        self.flight_reads[id(flight)] = records

    def wgmma_done(self, x: Context, flight: Flight, done: Array, site: Site) -> None:
        """Products have been waited for."""
        kept = []
        for group, flat, block in self.flight_reads.get(id(flight), []):
            at = int(block)
            if not done[group, at]:
                kept.append((group, flat, block))
                continue
            warps = list(range(4 * group, 4 * group + 4))
            self._landed(flat, self.wgmma_unit + group, at, warps)
        self.flight_reads[id(flight)] = kept
        if not kept:
            del self.flight_reads[id(flight)]
        self.epoch += 1
