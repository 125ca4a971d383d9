"""Runs one batch: groups of lanes by block, lowest block first, merged where they meet."""

from __future__ import annotations

from typing import Any

import numpy as np

from gemm_lab.emulator.faults import BarrierFault, Where
from gemm_lab.emulator.runtime.arrays import Array
from gemm_lab.emulator.runtime.budget import Budget
from gemm_lab.emulator.runtime.context import Context
from gemm_lab.emulator.runtime.masks import Mask
from gemm_lab.emulator.runtime.parking import ParkingPlace
from gemm_lab.emulator.runtime.steer import Split, Stall
from gemm_lab.emulator.runtime.waits import Waits

__all__ = ["Scheduler"]

# How long one group may run alone while others wait: a spinning group must let them go on.
PATIENCE = 512


class Scheduler(ParkingPlace):
    """One batch from its entry to its end.

    `code` gives, for each block, the function for all lanes, the one for some, and sizes.
    """

    def __init__(self, context: Context, code: Any) -> None:
        super().__init__(context)
        self.code = code
        self.registers = code.initial_registers()
        self.groups: dict[int, Mask | None] = {0: None}
        self.stalled: dict[int, Stall] = {}
        self.waits = Waits(context)
        self.alone = 0
        self.last = -1
        self.current = 0

    def run(self) -> None:
        """Until every lane has left."""
        x = self.x
        budget = x.setup.budget
        while self.groups or self.parked or self.waits:
            if self.waits:
                for target, lanes in self.waits.released(self.registers):
                    self.join(target, Mask(lanes, x.shape))
            if not self.groups or len(self.stalled) == len(self.groups):
                self.deadlock()
            index = self.pick()
            mask = self.groups.pop(index)
            self.current = index
            if mask is None:
                outcome, index = self.run_alone(index, budget)
            else:
                outcome = self.run_masked(index, mask)
            if x.steps > budget.next_look:
                budget.look(x.steps, self.place)
            self.settle(index, mask, outcome)
        x.check_departures()

    def run_alone(self, index: int, budget: Budget) -> tuple[Any, int]:
        """All lanes together: the fast path, one block after another."""
        x, registers, code = self.x, self.registers, self.code
        sizes = code.sizes
        functions = code.full
        lanes = x.lanes
        counters = x.counters
        issued = 0
        limit = budget.next_look
        while True:
            self.current = index
            function = functions[index] or code.function(index, masked=False)
            issued += sizes[index]
            if counters is not None:
                counters.block(x, index, None)
            outcome = function(registers, x, None)
            if outcome.__class__ is not int or outcome < 0:
                break
            x.steps += sizes[index]
            if x.steps > limit:
                budget.look(x.steps, self.place)
                limit = budget.next_look
            index = outcome
        x.steps += sizes[index]
        x.thread_instructions += issued * lanes
        return outcome, index

    def run_masked(self, index: int, mask: Mask) -> Any:
        """Some lanes: what they write must not reach registers that waiting lanes need."""
        x, registers, code = self.x, self.registers, self.code
        waiting = 0
        for other in self.groups:
            waiting |= code.live_in[other]
        for parked in self.parked:
            waiting |= code.live_in[parked.next]
        for target in self.waits.targets():
            waiting |= code.live_in[target]
        keep = waiting & code.writes[index]
        saved = []
        while keep:
            bit = keep & -keep
            number = bit.bit_length() - 1
            saved.append((number, registers[number]))
            keep ^= bit
        function = code.masked[index] or code.function(index, masked=True)
        outcome = function(registers, x, mask)
        if outcome.__class__ is Stall:
            return outcome
        for number, old in saved:
            new = registers[number]
            if old is not None and new is not old:
                registers[number] = np.where(mask.array, new, old)
        x.steps += code.sizes[index]
        x.thread_instructions += code.sizes[index] * mask.lanes
        if x.counters is not None:
            x.counters.block(x, index, mask)
        return outcome

    def pick(self) -> int:
        """The lowest block; lanes that spin let the others go on, and take turns."""
        candidates = sorted(index for index in self.groups if index not in self.stalled)
        spinning = self.code.spinning
        busy = [index for index in candidates if index not in spinning] if spinning else candidates
        if not busy:
            index = next((c for c in candidates if c > self.last), candidates[0])
        else:
            index = busy[0]
            self.alone = self.alone + 1 if len(candidates) > 1 else 0
            if self.alone > PATIENCE:
                index = next((c for c in candidates if c > self.last), candidates[0])
                if self.alone > 2 * PATIENCE:
                    self.alone = 0
        self.last = index
        return index

    def settle(self, index: int, mask: Mask | None, outcome: Any) -> None:
        """Send lanes where a block's outcome says."""
        x = self.x
        if outcome.__class__ is int:
            if outcome >= 0:
                self.join(outcome, mask)
            else:
                self.leave(mask)
        elif isinstance(outcome, Split):
            for target, lanes in outcome.ways:
                if target >= 0:
                    self.join(target, Mask(lanes, x.shape))
                else:
                    self.leave(Mask(lanes, x.shape))
        elif self.waits.takes(outcome):
            for target, lanes in self.waits.add(mask, outcome, self.registers):
                self.join(target, Mask(lanes, x.shape))
        elif isinstance(outcome, Stall):
            self.join(index, mask)
            self.stalled[index] = outcome
        else:
            self.park(mask, outcome)
        if x.arrivals.any() or self.parked:
            self.release()

    def join(self, index: int, mask: Mask | None) -> None:
        """Lanes go on at a block; those already there are joined."""
        self.stalled.pop(index, None)
        if index in self.groups:
            other = self.groups[index]
            if mask is None or other is None:
                mask = None
            else:
                mask = Mask(mask.array | other.array, self.x.shape)
        if mask is not None and mask.lanes == self.x.lanes:
            mask = None
        self.groups[index] = mask

    def leave(self, mask: Mask | None) -> None:
        """Lanes have finished."""
        x = self.x
        if mask is None:
            x.dead = np.ones(x.shape, dtype=bool)
        else:
            x.dead = mask.full() if x.dead is None else x.dead | mask.full()

    def deadlock(self) -> None:
        """Nothing can run: say who waits where."""
        x = self.x
        places = []
        first: tuple[Array, Any] | None = None
        for index, stall in self.stalled.items():
            mask = self.groups[index]
            array = np.ones(x.shape, bool) if mask is None else mask.full()
            first = first or (array, stall.site)
            count = int(array.sum())
            places.append(f"{count} threads at {stall.site.ins.opcode} ({x.where(stall.site.ins)})")
        places += self.waits.describe()
        first = first or self.waits.first()
        block = None
        for parked in self.parked:
            block = int(parked.lanes.any(axis=0).argmax()) if block is None else block
            count = int(parked.lanes[:, block].sum())
            if count:
                want = "all threads" if parked.count is None else f"{parked.count} threads"
                where = x.where(parked.arrival.site.ins)
                places.append(f"{count} threads at barrier {parked.barrier} for {want} ({where})")
            first = first or (parked.lanes.reshape(x.shape), parked.arrival.site)
        assert first is not None
        gone = 0 if x.dead is None else int(x.dead.reshape(x.threads, x.B)[:, block or 0].sum())
        lane = x.first_lane(first[0])
        only_warps = self.stalled and not self.parked and not self.waits
        kind = "incomplete warp" if only_warps else "deadlock"
        raise BarrierFault(
            kind,
            f"nothing can run: {'; '.join(places)}; {gone} threads have left",
            hint="every thread that a barrier counts must reach it",
            **x.blame_lane(lane, first[1]),
        )

    def place(self) -> Where | None:
        """Where the lanes are that run now."""
        found: Where | None = self.code.where_of(max(self.current, 0), self.x)
        return found
