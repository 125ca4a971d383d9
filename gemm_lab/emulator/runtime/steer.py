"""Where lanes go: branches, guards, barriers, warps that must be whole."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gemm_lab.emulator.faults import BarrierFault, MemoryFault
from gemm_lab.emulator.runtime.arrays import Array
from gemm_lab.emulator.runtime.blame import Blame
from gemm_lab.emulator.runtime.groups import Site
from gemm_lab.emulator.runtime.masks import Mask

__all__ = ["BarrierArrival", "Split", "Stall", "Steer"]

MAX_BARRIERS = 16


@dataclass(slots=True)
class Split:
    """Lanes part: (block, lanes) each."""

    ways: list[tuple[int, Array]]


@dataclass(slots=True)
class BarrierArrival:
    """Lanes park at a barrier. `count` is None when every thread of the block must come."""

    barrier: Array
    count: Array | None
    next: int
    site: Site
    reduce: tuple[str, int, Array] | None = None


@dataclass(slots=True)
class Stall:
    """A warp operation waits for lanes that are elsewhere."""

    site: Site


class Steer(Blame):
    """Decisions that generated code takes at the end of a block."""

    def br(self, p: Array, m: Mask | None, taken: int, other: int) -> int | Split:
        """A two-way branch on [Ty, Tx, B] booleans."""
        if m is None:
            if p.all():
                return taken
            if not p.any():
                return other
            return Split([(taken, p), (other, ~p)])
        yes = m.array & p
        if not yes.any():
            return other
        no = m.array & ~p
        if not no.any():
            return taken
        return Split([(taken, yes), (other, no)])

    def brx(
        self, index: Array, m: Mask | None, targets: tuple[int, ...], site: Site
    ) -> int | Split:
        """A jump through a table."""
        active = index if m is None else np.broadcast_to(index, self.shape)[m.full()]
        found = np.unique(active)
        if len(found) and (found[0] < 0 or found[-1] >= len(targets)):
            bad = (index < 0) | (index >= len(targets))
            if m is not None:
                bad = bad & m.array
            lane = self.first_lane(bad)
            raise MemoryFault(
                "branch table", "index beyond the table", **self.blame_lane(lane, site)
            )
        if len(found) == 1:
            return targets[int(found[0])]
        ways: dict[int, Array] = {}
        for value in found.tolist():
            lanes = index == value
            if m is not None:
                lanes = lanes & m.array
            target = targets[value]
            ways[target] = ways[target] | lanes if target in ways else lanes
        return Split(list(ways.items()))

    def guard(self, p: Array, m: Mask | None, negated: bool) -> Mask:
        """The lanes of a guarded instruction."""
        lanes = ~p if negated else p
        if m is not None:
            lanes = lanes & m.array
        return Mask(lanes, self.shape)

    def bar(
        self,
        barrier: Array,
        count: Array | None,
        m: Mask | None,
        after: int,
        site: Site,
    ) -> int | BarrierArrival:
        """bar.sync: when all lanes come at once there is nothing to wait for."""
        if m is None and barrier.size == 1 and (count is None or count.size == 1):
            number = int(barrier.reshape(-1)[0])
            want = self.warps if count is None else int(count.reshape(-1)[0]) // 32
            self.check_barrier(number, count, site)
            if want == self.warps and not self.arrivals[number].any():
                self.on_barrier(None, number)
                return after
        return BarrierArrival(barrier, count, after, site)

    def check_barrier(self, number: int, count: Array | None, site: Site) -> None:
        """Barrier numbers are 0 to 15; counts are positive multiples of the warp size."""
        if not 0 <= number < MAX_BARRIERS:
            raise BarrierFault(
                "barrier number", f"barrier {number}; there are 0 to 15", where=self.where(site.ins)
            )
        if count is not None:
            value = int(count.reshape(-1)[0])
            if value <= 0 or value % 32:
                raise BarrierFault(
                    "barrier count",
                    f"{value} threads at barrier {number}; it must be a positive multiple of 32",
                    where=self.where(site.ins),
                )

    def on_barrier(self, lanes: Array | None, number: int) -> None:
        """Lanes have passed a barrier together; the race detector wants to know."""
        if self.races is not None:
            self.races.barrier(self, lanes, number)

    def bar_arrive(self, barrier: Array, count: Array, m: Mask | None, site: Site) -> None:
        """bar.arrive: count the warps and go on. The scheduler looks at the sums."""
        numbers = np.broadcast_to(barrier, self.shape).reshape(self.threads, self.B)
        active = np.ones_like(numbers, dtype=bool) if m is None else m.full().reshape(numbers.shape)
        for number in np.unique(numbers[active]).tolist():
            self.check_barrier(number, count, site)
            lanes = active & (numbers == number)
            warps = self.by_warp(lanes).any(axis=1)
            self.arrivals[number] += 32 * warps.sum(axis=0)
            if self.races is not None:
                self.races.arrive(self, lanes, number)
        self.arrived = True

    def need(self, m: Mask, members: Array, site: Site) -> Stall | None:
        """A .sync operation: None when every member lane of each active warp is here."""
        active = self.by_warp(m.full().reshape(self.threads, self.B))
        named = np.broadcast_to(members, self.shape).reshape(self.threads, self.B)
        want = self.by_warp(named.astype(np.int64) & 0xFFFFFFFF)
        bits = np.int64(1) << np.arange(32, dtype=np.int64).reshape(1, 32, 1)
        have = np.where(active, bits, 0).sum(axis=1, keepdims=True)
        exists = self.by_warp(np.ones((self.threads, self.B), dtype=bool))
        there = np.where(exists, bits, 0).sum(axis=1, keepdims=True)
        outside = active & ((want & bits) == 0)
        if outside.any():
            lane = self.first_lane(self.from_warps(outside))
            raise BarrierFault(
                ".sync mask",
                "a lane executes the operation without being in its member mask",
                **self.blame_lane(lane, site),
            )
        missing = active & ((want & there & ~have) != 0)
        return Stall(site) if missing.any() else None

    def need_all(self, members: Array, site: Site) -> None:
        """A .sync operation of all lanes: each must be in its own member mask."""
        if members.size == 1 and int(members.reshape(-1)[0]) == -1:
            return
        self.need(Mask(np.ones((1, 1, 1), dtype=bool), self.shape), members, site)

    def check_set(self, good: Array, m: Mask | None, name: str, site: Site) -> None:
        """A register that may not have been written: fault where it was not."""
        if not self.track:
            return
        bad = ~good if m is None else ~good & m.array
        if bad.any():
            raise MemoryFault(
                "uninitialised register",
                f"{name} is read before it is written",
                **self.blame_lane(self.first_lane(bad), site),
            )

    def bar_red(
        self,
        barrier: Array,
        count: Array | None,
        m: Mask | None,
        after: int,
        site: Site,
        kind: str,
        register: int,
        values: Array,
        registers: list[Array],
    ) -> int | BarrierArrival:
        """bar.red: a barrier that also combines a predicate of all its threads."""
        outcome = self.bar(barrier, count, m, after, site)
        if isinstance(outcome, BarrierArrival):
            outcome.reduce = (kind, register, values)
            return outcome
        flags = np.broadcast_to(values, self.shape).reshape(self.threads, self.B)
        total = flags.sum(axis=0).reshape(1, 1, -1)
        if kind == "popc":
            registers[register] = total.astype(np.int32)
        else:
            registers[register] = total == self.threads if kind == "and" else total > 0
        return outcome
