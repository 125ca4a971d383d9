"""Lanes at block-wide barriers: parked until all whom the barrier counts have come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gemm_lab.emulator.faults import BarrierFault
from gemm_lab.emulator.runtime.arrays import Array, any_of
from gemm_lab.emulator.runtime.context import Context
from gemm_lab.emulator.runtime.masks import Mask
from gemm_lab.emulator.runtime.steer import BarrierArrival

__all__ = ["Parked", "ParkingPlace"]


@dataclass(slots=True)
class Parked:
    """Lanes at a barrier: `lanes` is [threads, B], `next` the block behind it."""

    barrier: int
    count: int | None
    lanes: Array
    next: int
    arrival: BarrierArrival


class ParkingPlace:
    """Named barriers of a batch. `registers` is the register file, for bar.red."""

    def __init__(self, context: Context) -> None:
        self.x = context
        self.parked: list[Parked] = []
        self.registers: list[Any] = []

    def join(self, index: int, mask: Mask | None) -> None:
        """Lanes go on at a block."""
        raise NotImplementedError

    def park(self, mask: Mask | None, arrival: BarrierArrival) -> None:
        """Lanes wait at a barrier; its number may differ between them."""
        x = self.x
        shape = (x.threads, x.B)
        lanes = np.ones(shape, dtype=bool) if mask is None else mask.full().reshape(shape)
        numbers = np.broadcast_to(arrival.barrier, x.shape).reshape(shape)
        for number in np.unique(numbers[lanes]).tolist():
            here = lanes & (numbers == number)
            count = arrival.count
            if count is not None:
                wanted = np.broadcast_to(count, x.shape).reshape(shape)[here]
                count = np.full((1,), int(wanted[0]))
            x.check_barrier(number, count, arrival.site)
            want = None if count is None else int(count[0])
            self.parked.append(Parked(number, want, here, arrival.next, arrival))

    def release(self) -> None:
        """Let go every block of the batch whose barrier has all its threads."""
        x = self.x
        for number in sorted({p.barrier for p in self.parked}):
            here = [p for p in self.parked if p.barrier == number]
            lanes = here[0].lanes
            for parked in here[1:]:
                lanes = lanes | parked.lanes
            dead = np.zeros_like(lanes) if x.dead is None else x.dead.reshape(lanes.shape)
            exists = x.by_warp(np.ones_like(lanes))
            at = x.by_warp(lanes)
            gone = x.by_warp(dead)
            come: Array = np.any(at, axis=1) & (at | gone | ~exists).all(axis=1)
            finished = (gone | ~exists).all(axis=1)
            counts = {p.count for p in here}
            count = next((c for c in counts if c is not None), None)
            waiting: Array = np.any(at, axis=1)
            if count is None:
                free: Array = (come | finished).all(axis=0) & any_of(waiting, 0)
            else:
                total = 32 * come.sum(axis=0) + x.arrivals[number]
                # A warp of which only some lanes came has not arrived.
                free = np.logical_and(
                    total >= count, any_of(waiting, 0) & (come | ~waiting).all(axis=0)
                )
            if free.any():
                self.open(number, here, lanes, free)

    def open(self, number: int, here: list[Parked], lanes: Array, free: Array) -> None:
        x = self.x
        self.check_converged(here, free)
        for parked in here:
            if parked.arrival.reduce is not None:
                self.reduce(here, free)
                break
        for parked in here:
            going = parked.lanes & free
            if going.any():
                self.join(parked.next, Mask(going.reshape(x.shape), x.shape))
                parked.lanes = parked.lanes & ~free
        self.parked = [p for p in self.parked if p.lanes.any()]
        x.arrivals[number][free] = 0
        x.on_barrier(lanes & free, number)

    def reduce(self, here: list[Parked], free: Array) -> None:
        """bar.red: combine the predicate over all threads of a block."""
        x = self.x
        for parked in here:
            reduction = parked.arrival.reduce
            if reduction is None:
                continue
            kind, register, values = reduction
            flags = np.broadcast_to(values, x.shape).reshape(x.threads, x.B) & parked.lanes
            total = flags.sum(axis=0)
            want = parked.lanes.sum(axis=0)
            result: Array = (
                total.astype(np.int32)
                if kind == "popc"
                else (total == want if kind == "and" else total > 0)
            )
            result = result.reshape(1, 1, -1)
            old = self.registers[register]
            going = (parked.lanes & free).reshape(x.shape)
            self.registers[register] = (
                result if old is None else np.where(going, result, old).astype(result.dtype)
            )

    def check_converged(self, here: list[Parked], free: Array) -> None:
        """The lanes of one warp must come to an aligned barrier at one place."""
        x = self.x
        if len({p.next for p in here}) < 2:
            return
        seen: Array | None = None
        for parked in here:
            warps = any_of(x.by_warp(parked.lanes & free), 1)
            if seen is not None and (seen & warps).any():
                lanes = x.by_warp(parked.lanes & free) & (seen & warps)[:, None]
                lane = x.first_lane(x.from_warps(lanes))
                other = x.where(here[0].arrival.site.ins)
                raise BarrierFault(
                    "divergent barrier",
                    f"lanes of one warp wait at different barriers, the others at {other}",
                    hint="a barrier must be reached by whole warps",
                    **x.blame_lane(lane, parked.arrival.site),
                )
            seen = warps if seen is None else seen | warps
