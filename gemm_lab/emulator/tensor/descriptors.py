"""Operands of wgmma in shared memory, found by their descriptors."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

import numpy as np

from gemm_lab.emulator.faults import MemoryFault
from gemm_lab.emulator.runtime.arrays import Array
from gemm_lab.emulator.runtime.groups import Site
from gemm_lab.emulator.runtime.watch import Watching
from gemm_lab.emulator.tensor.bulk import swizzled
from gemm_lab.emulator.tensor.fragments import PER_REGISTER, widen

__all__ = ["Descriptors", "Flight"]

K_BYTES = 32
ROWS = 64
SPANS = (0, 128, 64, 32)


@dataclass(slots=True)
class OperandRead:
    """Shared words that one warpgroup reads in these blocks."""

    group: int
    words: Array
    blocks: Array


@dataclass(slots=True)
class Flight:
    """Products in flight: registers of D, `fragments` of A, (warpgroup, block) not waited for."""

    registers: frozenset[int]
    groups: Array
    number: Array | None = None
    fragments: frozenset[int] = frozenset()
    reads: list[OperandRead] = field(default_factory=list)


@functools.lru_cache(maxsize=512)
def _matrix_words(
    extent: int, element_bytes: int, leading: int, stride: int, span: int, transposed: bool
) -> Array:
    """Byte offsets from the start of each 32-bit word of an operand, before the swizzle.

    K-major: [extent, 8], words along K. Otherwise [K, extent / 2], words along M or N.
    """
    if not transposed:
        row = np.arange(extent, dtype=np.int64).reshape(-1, 1)
        byte = np.arange(0, K_BYTES, 4, dtype=np.int64).reshape(1, -1)
        if span:
            return row // 8 * stride + row % 8 * span + byte
        return row // 8 * stride + row % 8 * 16 + byte // 16 * leading + byte % 16
    k = np.arange(K_BYTES // element_bytes, dtype=np.int64).reshape(-1, 1)
    along = np.arange(0, extent * element_bytes, 4, dtype=np.int64).reshape(1, -1)
    if span:
        return along // span * leading + along % span + k % 8 * span + k // 8 * stride
    return along // 16 * stride + along % 16 + k % 8 * 16 + k // 8 * leading


class Descriptors(Watching):
    """Matrices as float32 from shared memory or registers."""

    def _operand_at(
        self,
        descriptor: int,
        extent: int,
        kind: str,
        transposed: bool,
        group: int,
        blocks: Array,
        flight: Flight,
        site: Site,
    ) -> Array:
        """A matrix as float32 [blocks, extent, K] from its descriptor."""
        bits = descriptor & 0xFFFFFFFFFFFFFFFF
        start = (bits & 0x3FFF) << 4
        leading = (bits >> 16 & 0x3FFF) << 4
        stride = (bits >> 32 & 0x3FFF) << 4
        span = SPANS[bits >> 62]
        size = 4 // PER_REGISTER[kind]
        offsets = _matrix_words(extent, size, leading, stride, span, transposed)
        address = swizzled(start + offsets, span)
        if int(address.max()) + 4 > self.smem_bytes:
            raise MemoryFault(
                "out of bounds",
                f"a descriptor reaches shared address {int(address.max()):#x}; the block has "
                f"{self.smem_bytes} bytes",
                **self.blame_lane(int(blocks[0]), site),
            )
        words = address >> 2
        whole = len(blocks) == self.B
        data = self.smem[words] if whole else self.smem[words[..., None], blocks]
        if self.track:
            written = self.smem_written[words[..., None], blocks]
            if not written.all():
                raise MemoryFault(
                    "uninitialised",
                    "wgmma reads shared memory where nothing was written",
                    **self.blame_lane(int(blocks[0]), site),
                )
        flight.reads.append(OperandRead(group, words.reshape(-1), blocks))
        elements = widen(np.ascontiguousarray(data.transpose(2, 0, 1)), kind)
        return elements.transpose(0, 2, 1) if transposed else elements

    def _from_registers(self, words: Array, kind: str) -> Array:
        """A from registers [4, 128, blocks] as float32 [blocks, 64, K]."""
        shape = (2, 2, 4, 8, 4, words.shape[-1])  # chunk, half, warp, g, t
        moved = words.reshape(shape).transpose(5, 2, 1, 3, 0, 4)
        flat = np.ascontiguousarray(moved).reshape(words.shape[-1], ROWS, 8)
        return widen(flat, kind)
