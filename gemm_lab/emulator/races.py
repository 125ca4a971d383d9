"""The race detector: a vector clock a warp, the last write and the last reads of each granule.

An access by warp u at its clock c is ordered before warp w's next one when c <= known[w][u].
Barriers raise what their warps know of each other; __syncwarp raises what a warp knows of its own
lanes, so that within one interval two lanes of a warp race like any other threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gemm_lab.emulator.findings import Race, RaceKind
from gemm_lab.emulator.global_races import GlobalRaces
from gemm_lab.emulator.race_log import RaceLog
from gemm_lab.emulator.runtime.access import Base
from gemm_lab.emulator.runtime.arrays import Array, any_of
from gemm_lab.emulator.runtime.context import Context
from gemm_lab.emulator.runtime.groups import Site

__all__ = ["MANY", "PENDING", "Pattern", "RaceDetector"]

MANY = -2
PENDING = 1 << 30  # the clock of what is in flight: nobody knows it
MEMO_LIMIT = 512


class Pattern:
    """Who touches what in one group of accesses: reads are one entry a granule and warp."""

    __slots__ = ("block", "flat", "pc", "seen", "thread", "warp")

    def __init__(self, flat: Array, block: Array, thread: Array, warp: Array, pc: Array) -> None:
        self.flat = flat
        self.block = block
        self.thread = thread
        self.warp = warp
        self.pc = pc
        self.seen: tuple[int, int] | None = None


class RaceDetector:
    """Watches the shared memory of one batch; global memory through `GlobalRaces`."""

    def __init__(
        self,
        x: Context,
        log: RaceLog,
        world: GlobalRaces,
        granule_bytes: int,
        *,
        extra_units: int = 0,
    ) -> None:
        self.log = log
        self.world = world
        self.granule = granule_bytes
        self.warps, self.blocks = x.warps, x.B
        self.units = x.warps + extra_units
        size = max(1, -(-x.smem_bytes // granule_bytes)) * x.B
        self.write_clock = np.zeros(size, dtype=np.int32)
        self.write_thread = np.zeros(size, dtype=np.int32)
        self.write_pc = np.zeros(size, dtype=np.int32)
        self.write_atomic = np.zeros(size, dtype=np.bool_)
        self.read_clock = np.zeros((size, self.units), dtype=np.int32)
        self.read_thread = np.zeros((size, self.units), dtype=np.int32)
        self.read_pc = np.zeros((size, self.units), dtype=np.int32)
        self.clock = np.ones((self.units, x.B), dtype=np.int32)
        self.known = np.zeros((self.units, self.units, x.B), dtype=np.int32)
        self.pending: dict[int, Array] = {}
        self.epoch = 0
        self.writes = 0
        self.memo: dict[Any, Pattern] = {}

    # ---- order ----
    def _joined(self, warps: Array) -> Array:
        """What units [units, B] know together, their own present included: [units, B]."""
        own = self.known.copy()
        index = np.arange(self.units)
        own[index, index] = self.clock
        joined: Array = np.where(warps[:, None], own, 0).max(axis=0)
        return joined

    def barrier(self, x: Context, lanes: Array | None, number: int) -> None:
        """Warps that leave a barrier know all that they and its arrivals knew."""
        warps = (
            np.ones((self.warps, self.blocks), bool)
            if lanes is None
            else any_of(x.by_warp(lanes), 1)
        )
        joined = self._joined(self.as_units(warps))
        arrived = self.pending.get(number)
        if arrived is not None:
            freed = warps.any(axis=0)
            joined = np.where(freed, np.maximum(joined, arrived), joined)
            self.pending[number] = np.where(freed, 0, arrived)
        self.learn(warps, joined)

    def as_units(self, warps: Array) -> Array:
        """[warps, B] as [units, B]."""
        extra = self.units - self.warps
        if not extra:
            return warps
        return np.concatenate([warps, np.zeros((extra, self.blocks), dtype=bool)])

    def learn(self, warps: Array, joined: Array) -> None:
        """Raise what warps [warps, B] know, and begin a new interval of theirs."""
        units = self.as_units(warps)
        self.known = np.where(
            units[:, None], np.maximum(self.known, joined[None]), self.known
        ).astype(np.int32)
        self.clock = (self.clock + units).astype(np.int32)
        index = np.arange(self.warps)
        # A barrier orders the lanes of each warp that passes it.
        now = self.known[index, index]
        self.known[index, index] = np.where(warps, self.clock[: self.warps] - 1, now)
        self.epoch += 1
        self.world.step()

    def arrive(self, x: Context, lanes: Array, number: int) -> None:
        """bar.arrive gives what its warps know to those who will leave the barrier."""
        warps = any_of(x.by_warp(lanes), 1)
        self.publish(self.pending, number, warps)

    def publish(self, store: dict[Any, Array], key: Any, warps: Array) -> None:
        """Add what warps know to a store that others will learn from."""
        joined = self._joined(self.as_units(warps))
        old = store.get(key)
        store[key] = joined if old is None else np.maximum(old, joined)
        self.learn(warps, np.zeros((self.units, self.blocks), np.int32))

    def mbarrier_init(self, x: Context, slot: Array, block: Array, lane: Array, site: Site) -> None:
        """mbarrier.init by these lanes."""

    def mbarrier_use(self, x: Context, slot: Array, block: Array, lane: Array, site: Site) -> None:
        """Any other operation on an mbarrier of the lanes' own block."""

    def check_stores(self, x: Context) -> None:
        """At the end: bulk stores must have read what they store."""

    def warp_sync(self, x: Context, warps: Array) -> None:
        """__syncwarp: the lanes of these warps [warps, B] know of each other."""
        self.learn(warps, np.zeros((self.units, self.blocks), np.int32))

    def fence(self) -> None:
        """Fences let blocks order their accesses through flags, which is not followed."""
        self.world.fenced = True

    # ---- accesses ----
    def access(self, x: Context, base: Base, shared: bool) -> None:
        """A group of accesses of all active lanes."""
        if not shared:
            self.world.access(x, base, self.log)
            return
        group = base.group
        mask_key = None if base.mask is None else base.mask.array.tobytes()
        key = (id(group), base.bytes.shape, base.bytes.tobytes(), mask_key)
        pattern = self.memo.get(key)
        if pattern is None:
            pattern = self._pattern(x, base)
            if len(self.memo) >= MEMO_LIMIT:
                self.memo.clear()
            self.memo[key] = pattern
        for access in group.accesses:
            self.log.instrs[access.site.number] = access.site.ins
        if group.kind == "ld":
            if pattern.seen == (self.epoch, self.writes):
                return
            self.read(x, pattern)
            pattern.seen = (self.epoch, self.writes)
        else:
            self.write(x, pattern, atomic=group.kind == "atom")

    def thread_name(self, thread: int) -> int:
        """The thread behind a number in the tables."""
        return thread

    def _pattern(self, x: Context, base: Base) -> Pattern:
        """Expand a group to (granule, thread), reads reduced to one a granule and warp."""
        group = base.group
        full = np.broadcast_to(base.bytes, x.shape).reshape(x.threads, x.B)
        thread = np.broadcast_to(np.arange(x.threads).reshape(-1, 1), full.shape)
        block = np.broadcast_to(np.arange(x.B).reshape(1, -1), full.shape)
        if base.mask is None:
            at, thread, block = full.reshape(-1), thread.reshape(-1), block.reshape(-1)
        else:
            lanes = base.mask.full().reshape(full.shape)
            at, thread, block = full[lanes], thread[lanes], block[lanes]
        granules, pcs = [], []
        for access in group.accesses:
            start = (at + (access.offset - group.lo)) // self.granule
            for step in range(max(1, access.size_bytes // self.granule)):
                granules.append(start + step)
                pcs.append(access.site.number)
        flat = np.stack(granules) * x.B + block
        pc = np.repeat(np.array(pcs, dtype=np.int32), len(at))
        thread = np.tile(thread, len(granules))
        return self.reduce(flat.reshape(-1), np.tile(block, len(granules)), thread, pc, group.kind)

    def reduce(self, flat: Array, block: Array, thread: Array, pc: Array, kind: str) -> Pattern:
        """A pattern of given accesses."""
        warp = thread // 32
        if kind != "ld":
            return Pattern(flat, block, thread, warp, pc)
        slot = flat * self.units + warp
        _, first, inverse = np.unique(slot, return_index=True, return_inverse=True)
        chosen = thread[first]
        mixed = np.zeros(len(first), dtype=bool)
        mixed[inverse[thread != chosen[inverse]]] = True
        owner = np.where(mixed, MANY, chosen)
        return Pattern(flat[first], block[first], owner, warp[first], pc[first])

    def read(self, x: Context, p: Pattern) -> None:
        """Reads against the last writes."""
        clock, writer = self.write_clock[p.flat], self.write_thread[p.flat]
        late = clock > self.known[p.warp, writer // 32, p.block]
        bad = late & ((writer != p.thread) | (p.thread == MANY) | (clock == PENDING)) & (clock > 0)
        if bad.any():
            self.report(x, "write-read", p, bad, self.write_pc[p.flat], writer)
        now = self.clock[p.warp, p.block]
        same = self.read_clock[p.flat, p.warp] == now
        old = self.read_thread[p.flat, p.warp]
        self.read_clock[p.flat, p.warp] = now
        self.read_thread[p.flat, p.warp] = np.where(same & (old != p.thread), MANY, p.thread)
        self.read_pc[p.flat, p.warp] = p.pc

    def write(self, x: Context, p: Pattern, *, atomic: bool) -> None:
        """Writes against the last writes and reads, and against each other."""
        if not len(p.flat):
            return
        if not atomic:
            self.collide(x, p)
        clock, writer = self.write_clock[p.flat], self.write_thread[p.flat]
        late = clock > self.known[p.warp, writer // 32, p.block]
        bad = late & ((writer != p.thread) | (clock == PENDING)) & (clock > 0)
        if atomic:
            bad &= ~self.write_atomic[p.flat]
        if bad.any():
            self.report(x, "write-write", p, bad, self.write_pc[p.flat], writer)
        reads = self.read_clock[p.flat]
        late = reads > self.known[p.warp, :, p.block]
        if late.any():
            readers = self.read_thread[p.flat]
            own = (readers == p.thread[:, None]) & (p.warp[:, None] == np.arange(self.units))
            late &= ~own
            bad = any_of(late, 1)
            if bad.any():
                who = late.argmax(axis=1)
                rows = np.arange(len(who))
                first = self.read_pc[p.flat][rows, who]
                self.report(x, "read-write", p, bad, first, readers[rows, who])
        self.write_clock[p.flat] = self.clock[p.warp, p.block]
        self.write_thread[p.flat] = p.thread
        self.write_pc[p.flat] = p.pc
        self.write_atomic[p.flat] = atomic
        self.writes += 1

    def collide(self, x: Context, p: Pattern) -> None:
        """Two lanes that write one granule in one instruction."""
        key = p.flat * (1 << 24) + p.pc
        order = np.argsort(key, kind="stable")
        ranked = key[order]
        twin = np.zeros(len(key), dtype=bool)
        same = (ranked[1:] == ranked[:-1]) & (p.thread[order][1:] != p.thread[order][:-1])
        if not same.any():
            return
        twin[order[1:][same]] = True
        other = np.zeros(len(key), dtype=np.int64)
        other[order[1:]] = p.thread[order[:-1]]
        self.report(x, "same instruction", p, twin, p.pc, other)

    def report(
        self, x: Context, kind: RaceKind, p: Pattern, bad: Array, first: Array, other: Array
    ) -> None:
        """One finding for each pair of places."""
        rows = np.flatnonzero(bad)
        pairs = np.stack([first[rows], p.pc[rows]], axis=1)
        unique, index, counts = np.unique(pairs, axis=0, return_index=True, return_counts=True)
        for (one, two), at, count in zip(
            unique.tolist(), rows[index], counts.tolist(), strict=True
        ):

            def make(one: int = one, two: int = two, at: int = int(at), count: int = count) -> Race:
                block = x.block_of(int(p.block[at]))
                thread = int(p.thread[at])
                who = int(other[at])
                return Race(
                    kind=kind,
                    space="shared",
                    address=int(p.flat[at]) // x.B * self.granule,
                    first=x.where(self.log.instrs[one]),
                    second=x.where(self.log.instrs[two]),
                    block=block,
                    other_block=block,
                    thread=x.thread_of(self.thread_name(max(thread, int(p.warp[at]) * 32))),
                    other_thread=None if who == MANY else x.thread_of(self.thread_name(who)),
                    count=count,
                )

            self.log.add((one, two, kind, "shared"), make, count)
