"""Limits of each GPU architecture: what a block and a multiprocessor can hold.

Figures: CUDA C++ Programming Guide, "Compute Capabilities", table of technical specifications.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from gemm_lab.errors import UsageError

__all__ = ["ARCHES", "ArchLimits", "arch_limits", "arch_number"]

KIB = 1024


@dataclass(frozen=True, kw_only=True)
class ArchLimits:
    """What one compute capability allows.

    Attributes:
        arch: as NVRTC takes it, "sm_80" or "sm_90a".
        max_warps_per_sm, max_blocks_per_sm: resident at once.
        smem_per_sm_bytes: shared memory of a multiprocessor.
        smem_per_block_bytes: static limit; the opt-in limit is what dynamic memory may reach.
        reserved_smem_per_block_bytes: what the driver takes from each block.
        register_unit, smem_unit_bytes, warp_unit: allocation granularity.
    """

    arch: str
    max_warps_per_sm: int
    max_blocks_per_sm: int
    smem_per_sm_bytes: int
    smem_per_block_optin_bytes: int
    reserved_smem_per_block_bytes: int
    smem_unit_bytes: int
    smem_per_block_bytes: int = 48 * KIB
    max_threads_per_block: int = 1024
    warp_size: int = 32
    registers_per_sm: int = 64 * KIB
    registers_per_block: int = 64 * KIB
    max_registers_per_thread: int = 255
    register_unit: int = 256
    warp_unit: int = 4
    max_grid_x: int = 2**31 - 1
    max_grid_yz: int = 65535
    max_block_z: int = 64

    @property
    def number(self) -> int:
        """90 for sm_90a: what rules compare as ARCH."""
        return arch_number(self.arch)


def _limits(arch: str, warps: int, blocks: int, smem_kib: int, *, unit: int = 128) -> ArchLimits:
    reserved = KIB if arch_number(arch) >= 80 else 0
    return ArchLimits(
        arch=arch,
        max_warps_per_sm=warps,
        max_blocks_per_sm=blocks,
        smem_per_sm_bytes=smem_kib * KIB,
        smem_per_block_optin_bytes=smem_kib * KIB - reserved,
        reserved_smem_per_block_bytes=reserved,
        smem_unit_bytes=unit,
    )


def arch_number(arch: str) -> int:
    """90 for "sm_90a"; UsageError when it is no architecture's name."""
    found = re.fullmatch(r"sm_(\d{2,3})[af]?", arch)
    if not found:
        raise UsageError(f"{arch!r} is no architecture", hint="write it as sm_80 or sm_90a")
    return int(found[1])


ARCHES: dict[int, ArchLimits] = {
    limits.number: limits
    for limits in (
        _limits("sm_70", 64, 32, 96, unit=256),
        _limits("sm_72", 64, 32, 96, unit=256),
        _limits("sm_75", 32, 16, 64, unit=256),
        _limits("sm_80", 64, 32, 164),
        _limits("sm_86", 48, 16, 100),
        _limits("sm_87", 48, 16, 164),
        _limits("sm_89", 48, 24, 100),
        _limits("sm_90", 64, 32, 228),
        _limits("sm_100", 64, 32, 228),
        _limits("sm_103", 64, 32, 228),
        _limits("sm_120", 48, 24, 100),
        _limits("sm_121", 48, 24, 100),
    )
}


def arch_limits(arch: str) -> ArchLimits:
    """Limits of an architecture, suffix kept; UsageError with the known ones otherwise."""
    number = arch_number(arch)
    if number not in ARCHES:
        raise UsageError(
            f"no limits are known for {arch}",
            hint=f"known: {', '.join(a.arch for a in ARCHES.values())}",
        )
    return replace(ARCHES[number], arch=arch)
