"""One batch of blocks in flight: geometry, special registers, memories."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gemm_lab.emulator.runtime.access import AccessMixin
from gemm_lab.emulator.runtime.arrays import Array, Shape
from gemm_lab.emulator.runtime.atomics import AtomicsMixin
from gemm_lab.emulator.runtime.blame import BlameMixin
from gemm_lab.emulator.runtime.memory import HEAP_BASE, Memory, Views
from gemm_lab.emulator.runtime.steer import SteerMixin
from gemm_lab.emulator.runtime.system import SystemMixin
from gemm_lab.emulator.runtime.warps import WarpMixin
from gemm_lab.emulator.runtime.watch import WatchMixin

if TYPE_CHECKING:
    from gemm_lab.emulator.runtime.setup import Setup

__all__ = ["LOCAL_BASE", "SHARED_BASE", "Context"]

SHARED_BASE = 0x7E00_0000_0000
LOCAL_BASE = 0x7D00_0000_0000
WARP = 32


class Context(AccessMixin, AtomicsMixin, WarpMixin, SteerMixin, SystemMixin, BlameMixin, WatchMixin):
    """What generated functions reach as X.

    `shape` is [Ty, Tx, B]: threads with y and z folded, threads along x, blocks of the batch.
    """

    def __init__(self, setup: Setup, block_ids: Array) -> None:
        self.setup = setup
        self.memory: Memory = setup.memory
        bx, by, bz = setup.block
        self.block_ids = block_ids
        self.B = len(block_ids)
        self.shape: Shape = (by * bz, bx, self.B)
        self.threads = bx * by * bz
        self.lanes = self.threads * self.B
        self.warps = -(-self.threads // WARP)
        self.code = setup.program
        self.heap: Views = setup.memory.views
        self.heap_base = HEAP_BASE
        self.track = setup.options.uninitialised
        words = -(-setup.smem_total_bytes // 4)
        self.smem_bytes = setup.smem_total_bytes
        self.smem = np.full((words, self.B), -0x3F2153, dtype=np.int32)
        self.smem_rows = Views(self.smem, words=True)
        self.smem_flat = Views(self.smem.reshape(-1), words=True)
        self.smem_written = np.zeros((words, self.B), dtype=np.bool_)
        self.smem_version = 0
        self.smem_gaps: Array | None = None
        local_words = -(-setup.local_bytes // 4)
        self.local_bytes = setup.local_bytes
        self.local = Views(np.zeros(local_words * self.lanes, dtype=np.int32), words=True)
        self.lane_ids = np.arange(self.lanes, dtype=np.int64).reshape(self.shape)
        self.block_row = np.arange(self.B, dtype=np.int64).reshape(1, 1, self.B)
        self.dead: Array | None = None
        self.steps = 0
        self.thread_instructions = 0
        self._special: dict[str, Array] = {}
        self.verified: dict[int, Any] = {}
        self.expand = self.B < 24
        # A pending arrival count a barrier, from bar.arrive: [16, B] threads.
        self.arrivals = np.zeros((16, self.B), dtype=np.int64)
        self.tensor: Any = None
        self.races: Any = None
        self.counters: Any = None

    def special(self, name: str) -> Array:
        """A special register as int32 (int64 for the wide ones), [Ty, Tx, B] or smaller."""
        found = self._special.get(name)
        if found is None:
            found = self._make_special(name)
            if not name.startswith(("%clock", "%globaltimer")):
                self._special[name] = found
        return found
