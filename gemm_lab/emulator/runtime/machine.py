"""One batch of blocks in flight: geometry and memories."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gemm_lab.emulator.runtime.arrays import Array, Shape
from gemm_lab.emulator.runtime.masks import Mask
from gemm_lab.emulator.runtime.memory import HEAP_BASE, Memory, Views

if TYPE_CHECKING:
    from gemm_lab.emulator.runtime.setup import Setup

__all__ = [
    "LOCAL_BASE",
    "POISON",
    "REMOTE_MASK",
    "REMOTE_SHIFT",
    "SHARED_BASE",
    "WARP",
    "Machine",
]

SHARED_BASE = 0x7E00_0000_0000
LOCAL_BASE = 0x7D00_0000_0000
WARP = 32
# A shared::cluster address of another block: its rank plus one above these bits.
REMOTE_SHIFT = 24
REMOTE_MASK = (1 << REMOTE_SHIFT) - 1
POISON = -0x3F2153  # what unwritten shared memory holds: a NaN as float32


class Machine:
    """State of a batch. `shape` is [Ty, Tx, B]: threads (y and z folded, then x), blocks.

    Shared memory is int32 [words, B], so that an address that all blocks share is a row; local
    memory is int32 [words * lanes].
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
        self.smem = np.full((words, self.B), POISON, dtype=np.int32)
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
        self.row_masks: dict[Any, Any] = {}
        self.copies: list[Any] = []
        self.committed: Array = np.zeros((1, 1, 1), dtype=np.int32)
        size = setup.cluster[0] * setup.cluster[1] * setup.cluster[2]
        self.cluster_size = size
        self.met_cluster = np.zeros(self.B, dtype=bool)
        self.last_reached = np.zeros(self.B, dtype=np.int64)
        self.last_waited = np.zeros(self.B, dtype=np.int64)
        self.last_reach: Any = None
        self.remote_sequence = 0
        self.mbarriers: Any = None
        self.barrier_version = 0
        self.cluster_arrivals: Array | None = None
        self.cluster_waits: Array | None = None
        self.register_counts: Array | None = None
        self.wgmma_clean: Array | None = None
        self.wgmma_committed: Array | None = None
        self.flights: list[Any] = []
        self.tiles: dict[int, Array] = {}
        self.races: Any = None
        self.counters: Any = None

    def by_warp(self, lanes: Array) -> Array:
        """[threads, B] booleans as [warps, 32, B], padded with False."""
        if self.threads % 32:
            lanes = np.concatenate(
                [lanes, np.zeros((-self.threads % 32, self.B), dtype=lanes.dtype)]
            )
        return lanes.reshape(self.warps, 32, self.B)

    def from_warps(self, lanes: Array) -> Array:
        """[warps, 32, B] back to [Ty, Tx, B]."""
        return lanes.reshape(-1, self.B)[: self.threads].reshape(self.shape)

    def to_warps(self, value: Array) -> Array:
        """A register by warp and lane; lanes that don't exist read zero."""
        full = np.broadcast_to(value, self.shape).reshape(self.threads, self.B)
        if self.threads % 32:
            full = np.concatenate([full, np.zeros((-self.threads % 32, self.B), dtype=full.dtype)])
        return full.reshape(self.warps, 32, self.B)

    def active_warps(self, m: Mask | None) -> Array:
        """Active lanes as [warps, 32, B]."""
        lanes = np.ones((self.threads, self.B), bool) if m is None else m.full().reshape(-1, self.B)
        return self.by_warp(lanes)
