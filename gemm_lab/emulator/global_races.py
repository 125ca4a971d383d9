"""Races in global memory: within a block between two barriers, and between blocks.

Blocks can order their accesses only through fences and atomics; a kernel that uses them is not
judged across blocks, since flags are not followed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gemm_lab.emulator.findings import Race, RaceKind
from gemm_lab.emulator.runtime.access import Base
from gemm_lab.emulator.runtime.arrays import Array
from gemm_lab.emulator.runtime.context import Context
from gemm_lab.emulator.runtime.memory import HEAP_BASE, Memory

if TYPE_CHECKING:
    from gemm_lab.emulator.race_log import RaceLog

__all__ = ["GlobalRaces"]

NONE, MANY = -1, -2
STRIDE = 1024  # threads of a block at most
LIMIT_WORDS = 1 << 26


class GlobalRaces:
    """The last writer and reader of each heap word over a launch.

    A thread's number is block * 1024 + thread. `segment` counts barriers: accesses of one block
    in different segments are taken to be ordered.
    """

    def __init__(self, memory: Memory, *, across_blocks: bool, granule_bytes: int) -> None:
        used = memory.used_bytes
        self.granule = granule_bytes
        size = -(-used // granule_bytes)
        self.enabled = 0 < size <= LIMIT_WORDS
        self.fenced = False
        self.across = across_blocks
        self.segment = 1
        if self.enabled:
            self.writer = np.full(size, NONE, dtype=np.int64)
            self.write_segment = np.zeros(size, dtype=np.int32)
            self.write_pc = np.zeros(size, dtype=np.int32)
            self.write_atomic = np.zeros(size, dtype=np.bool_)
            self.reader = np.full(size, NONE, dtype=np.int64)
            self.read_block = np.full(size, NONE, dtype=np.int64)
            self.read_segment = np.zeros(size, dtype=np.int32)
            self.read_pc = np.zeros(size, dtype=np.int32)

    def step(self) -> None:
        """A barrier was passed."""
        self.segment += 1

    def access(self, x: Context, base: Base, log: RaceLog) -> None:
        """A group of global accesses of all active lanes."""
        if not self.enabled:
            return
        group = base.group
        threads = np.arange(x.threads, dtype=np.int64).reshape(x.shape[0], x.shape[1], 1)
        who = x.block_ids.reshape(1, 1, -1) * STRIDE + threads
        at, who = np.broadcast_arrays(base.bytes, who)
        if base.mask is None:
            at, who = at.reshape(-1), who.reshape(-1)
        else:
            lanes = np.broadcast_to(base.mask.array, at.shape)
            at, who = at[lanes], who[lanes]
        for access in group.accesses:
            if "nc" in access.site.ins.mods:
                continue
            log.instrs[access.site.number] = access.site.ins
            start = (at + (access.offset - group.lo)) // self.granule
            for step in range(max(1, access.size_bytes // self.granule)):
                self._one(x, start + step, who, access.site.number, group.kind, log)

    def _one(self, x: Context, word: Array, who: Array, pc: int, kind: str, log: RaceLog) -> None:
        writer = self.writer[word]
        block = who // STRIDE
        other = (writer != NONE) & (writer != who)
        same_block = writer // STRIDE == block
        bad = other & same_block & (self.write_segment[word] == self.segment)
        if self.across and not self.fenced:
            bad |= other & ~same_block
        if kind == "atom":
            bad &= ~self.write_atomic[word]
        if bad.any():
            name: RaceKind = "write-read" if kind == "ld" else "write-write"
            self._report(x, name, word, bad, self.write_pc[word], writer, who, pc, log)
        if kind == "ld":
            now = self.read_segment[word] == self.segment
            old = self.reader[word]
            self.reader[word] = who
            lost = self.reader[word] != who
            many = lost | (now & (old != NONE) & (old != who))
            self.reader[word[many]] = MANY
            seen = self.read_block[word]
            self.read_block[word] = np.where((seen != NONE) & (seen != block), MANY, block)
            if x.B > 1:
                mixed = self.read_block[word] != block
                self.read_block[word[mixed]] = MANY
            self.read_segment[word] = self.segment
            self.read_pc[word] = pc
            return
        self._write(x, word, who, block, pc, kind, log)

    def _write(
        self, x: Context, word: Array, who: Array, block: Array, pc: int, kind: str, log: RaceLog
    ) -> None:
        reader = self.reader[word]
        near = (self.read_segment[word] == self.segment) & (reader != NONE) & (reader != who)
        near &= self.read_block[word] == block
        bad = near
        if self.across and not self.fenced:
            seen = self.read_block[word]
            bad = bad | ((seen != NONE) & (seen != block))
        if bad.any():
            self._report(x, "read-write", word, bad, self.read_pc[word], reader, who, pc, log)
        self.writer[word] = who
        if kind != "atom":
            lost = self.writer[word] != who
            if lost.any():
                here = np.full(len(word), pc, dtype=np.int32)
                winner = self.writer[word]
                self._report(x, "same instruction", word, lost, here, winner, who, pc, log)
        self.write_segment[word] = self.segment
        self.write_pc[word] = pc
        self.write_atomic[word] = kind == "atom"

    def _report(
        self,
        x: Context,
        kind: RaceKind,
        word: Array,
        bad: Array,
        first: Array,
        other: Array,
        who: Array,
        pc: int,
        log: RaceLog,
    ) -> None:
        rows = np.flatnonzero(bad)
        places, index, counts = np.unique(first[rows], return_index=True, return_counts=True)
        for one, at, count in zip(
            places.tolist(), rows[index].tolist(), counts.tolist(), strict=True
        ):

            def make(one: int = one, at: int = at, count: int = count) -> Race:
                mine, theirs = int(who[at]), int(other[at])
                return Race(
                    kind=kind,
                    space="global",
                    address=HEAP_BASE + int(word[at]) * self.granule,
                    first=x.where(log.instrs[one]),
                    second=x.where(log.instrs[pc]),
                    block=x.grid_block(mine // STRIDE),
                    other_block=x.grid_block((theirs if theirs >= 0 else mine) // STRIDE),
                    thread=x.thread_of(mine % STRIDE),
                    other_thread=x.thread_of(theirs % STRIDE) if theirs >= 0 else None,
                    count=count,
                )

            log.add((one, pc, kind, "global"), make, count)
