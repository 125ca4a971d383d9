"""What one warp's memory instruction costs: sectors of global memory, cycles of shared memory.

Global memory moves in sectors of 32 bytes, four to a cache line; shared memory has 32 banks of
4 bytes, and lanes that read the same word share it (CUDA C++ Programming Guide, 5.3.2 and
compute capability 5.x and up; Nsight Compute, "Memory tables").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

__all__ = [
    "BANK_BYTES",
    "LINE_BYTES",
    "SECTOR_BYTES",
    "WAVEFRONT_BYTES",
    "GlobalRequest",
    "bank_wavefronts",
    "global_request",
    "run_sectors",
]

SECTOR_BYTES = 32
LINE_BYTES = 128
BANK_BYTES = 4
WAVEFRONT_BYTES = 128  # what the L1 and shared memory deliver in a cycle
_BANKS = 32
_HALF_WARP = 16


@dataclass(frozen=True, kw_only=True)
class GlobalRequest:
    """One warp-wide global load or store: distinct 32-byte sectors and 128-byte lines."""

    sectors: int
    lines: int

    @property
    def l1_cycles(self) -> int:
        """Cycles in the L1: one for each line, and two at least.

        NOTE: fitted, not documented. 33 to 34 cycles for each A-column and B-broadcast pair give
        0.245 TFLOP/s on a V100S and 0.50 on an H200, as measured at 4096^3; two coalesced loads
        at two cycles give 2.05 and 4.2 where 1.89 and 4.4 were measured.
        """
        return max(2, self.lines)


def global_request(addresses: Sequence[int], access_bytes: int) -> GlobalRequest:
    """Sectors and lines that the lanes touch; `addresses` are byte offsets from an aligned base."""
    touched = {
        byte // SECTOR_BYTES
        for start in addresses
        for byte in (*range(start, start + access_bytes, SECTOR_BYTES), start + access_bytes - 1)
    }
    per_line = LINE_BYTES // SECTOR_BYTES
    return GlobalRequest(sectors=len(touched), lines=len({s // per_line for s in touched}))


def bank_wavefronts(addresses: Sequence[int], access_bytes: int) -> int:
    """Cycles that a warp-wide shared load or store takes; `addresses` are byte offsets.

    The most distinct words in one bank; accesses of 16 bytes are served half a warp at a time,
    so that a full one takes four cycles and a broadcast one two.
    """
    groups: list[Sequence[int]] = [addresses]
    if access_bytes > 8:
        groups = [addresses[:_HALF_WARP], addresses[_HALF_WARP:]]
    return sum(_conflicts(group, access_bytes) for group in groups if group)


def _conflicts(addresses: Sequence[int], access_bytes: int) -> int:
    words = {
        word
        for start in addresses
        for word in range(start // BANK_BYTES, (start + access_bytes - 1) // BANK_BYTES + 1)
    }
    load = [0] * _BANKS
    for word in words:
        load[word % _BANKS] += 1
    return max(load)


def run_sectors(run_bytes: int, stride_bytes: int) -> float:
    """Mean sectors under a contiguous run, when runs start `stride_bytes` apart.

    A run of L bytes that starts at multiples of g covers (L + 32 - g) / 32 sectors on average,
    where g = gcd(stride, 32).
    """
    if run_bytes <= 0:
        return 0.0
    step = gcd(stride_bytes, SECTOR_BYTES) or SECTOR_BYTES
    whole = gcd(run_bytes, step)
    return (run_bytes + SECTOR_BYTES - whole) / SECTOR_BYTES
