"""How many blocks an SM holds at once: the textbook rule beside what the hardware does.

The textbook divides each resource by what a block asks for. The hardware rounds: registers go to
warps in units and sit in four partitions, shared memory is handed out in units and the driver keeps
1 KB of it a block from sm_80 on. The hardware rule here is that of `cuda_occupancy.h` (CUDA 12),
case "opt-in": the kernel's dynamic limit has been raised to what the launch asks for.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gemm_lab.core.arch import ArchLimits
from gemm_lab.errors import UsageError

__all__ = [
    "BlockResources",
    "Limiter",
    "Occupancy",
    "hardware_occupancy",
    "textbook_occupancy",
]

_PARTITIONS = 4  # register files of an SM, compute capability 7.0 and up
_CALCULATOR_MAX_REGISTERS = 256  # cuda_occupancy.h refuses above this; compilers stop at 255


class Limiter(StrEnum):
    """What keeps one more block out."""

    THREADS = "threads"
    WARPS = "warps"
    BLOCKS = "blocks"
    REGISTERS = "registers"
    SMEM = "shared memory"
    BARRIERS = "barriers"


@dataclass(frozen=True, kw_only=True)
class BlockResources:
    """What one block asks for. `barriers` is the number of named barriers in use (one is usual)."""

    threads: int
    registers_per_thread: int = 0
    static_smem_bytes: int = 0
    dynamic_smem_bytes: int = 0
    barriers: int = 1

    def __post_init__(self) -> None:
        if self.threads < 1:
            raise UsageError(f"threads = {self.threads}: a block has at least one thread")
        for name in ("registers_per_thread", "static_smem_bytes", "dynamic_smem_bytes", "barriers"):
            if getattr(self, name) < 0:
                raise UsageError(f"{name} = {getattr(self, name)}: must not be negative")

    @property
    def smem_bytes(self) -> int:
        """Static and dynamic shared memory together."""
        return self.static_smem_bytes + self.dynamic_smem_bytes


@dataclass(frozen=True, kw_only=True)
class Occupancy:
    """Blocks and warps that an SM holds at once.

    `limits` gives for each resource the blocks that it alone would allow (None: any number);
    `limiters` are those that bind. `allocated_*` is what a block really takes.
    """

    blocks_per_sm: int
    warps_per_sm: int
    max_warps_per_sm: int
    limiters: tuple[Limiter, ...]
    limits: dict[Limiter, int | None]
    allocated_registers_per_block: int
    allocated_smem_bytes_per_block: int

    @property
    def fraction(self) -> float:
        """Resident warps over the most that fit, in [0, 1]."""
        return self.warps_per_sm / self.max_warps_per_sm


def textbook_occupancy(limits: ArchLimits, block: BlockResources) -> Occupancy:
    """Each resource of the SM divided by what the block asks for, rounded down."""
    warps = _ceil_div(block.threads, limits.warp_size)
    too_many = block.threads > limits.max_threads_per_block
    registers = block.registers_per_thread * block.threads
    return _occupancy(
        limits,
        warps,
        {
            Limiter.THREADS: 0 if too_many else None,
            Limiter.WARPS: limits.max_warps_per_sm // warps,
            Limiter.BLOCKS: limits.max_blocks_per_sm,
            Limiter.REGISTERS: limits.registers_per_sm // registers if registers else None,
            Limiter.SMEM: limits.smem_per_sm_bytes // block.smem_bytes
            if block.smem_bytes
            else None,
        },
        registers,
        block.smem_bytes,
    )


def hardware_occupancy(limits: ArchLimits, block: BlockResources) -> Occupancy:
    """What the hardware does, equal to `cudaOccMaxActiveBlocksPerMultiprocessor`.

    0 blocks means that the kernel cannot be launched.
    """
    warps = _ceil_div(block.threads, limits.warp_size)
    registers_per_warp = _round_up(
        block.registers_per_thread * limits.warp_size, limits.register_unit
    )
    smem = _round_up(
        block.smem_bytes + limits.reserved_smem_per_block_bytes, limits.smem_unit_bytes
    )
    too_many = block.threads > limits.max_threads_per_block
    return _occupancy(
        limits,
        warps,
        {
            Limiter.THREADS: 0 if too_many else None,
            Limiter.WARPS: limits.max_warps_per_sm // warps,
            Limiter.BLOCKS: limits.max_blocks_per_sm,
            Limiter.REGISTERS: _register_limit(limits, block, warps, registers_per_warp),
            Limiter.SMEM: _smem_limit(limits, block, smem),
            Limiter.BARRIERS: _barrier_limit(limits, block),
        },
        registers_per_warp * warps,
        smem,
    )


def _register_limit(
    limits: ArchLimits, block: BlockResources, warps: int, registers_per_warp: int
) -> int | None:
    # The launch check counts warps as if they filled all partitions evenly.
    assumed = registers_per_warp * _round_up(warps, _PARTITIONS)
    too_many = block.registers_per_thread > _CALCULATOR_MAX_REGISTERS
    if too_many or assumed > limits.registers_per_block:
        return 0
    if not registers_per_warp:
        return None
    warps_per_partition = limits.registers_per_sm // _PARTITIONS // registers_per_warp
    return warps_per_partition * _PARTITIONS // warps


def _smem_limit(limits: ArchLimits, block: BlockResources, allocated_bytes: int) -> int | None:
    reserved = limits.reserved_smem_per_block_bytes
    opted_in = block.smem_bytes + reserved > limits.smem_per_block_bytes
    most = limits.smem_per_block_optin_bytes if opted_in else limits.smem_per_block_bytes
    if allocated_bytes > most + reserved:
        return 0
    return limits.smem_per_sm_bytes // allocated_bytes if allocated_bytes else None


def _barrier_limit(limits: ArchLimits, block: BlockResources) -> int | None:
    # Counted from Hopper on: two for each block slot, one on the consumer chips.
    if limits.number < 90 or not block.barriers:
        return None
    per_slot = 1 if limits.number in (101, 120, 121) else 2
    return limits.max_blocks_per_sm * per_slot // block.barriers


def _occupancy(
    limits: ArchLimits,
    warps_per_block: int,
    allowed: dict[Limiter, int | None],
    allocated_registers: int,
    allocated_smem_bytes: int,
) -> Occupancy:
    blocks = min(value for value in allowed.values() if value is not None)
    return Occupancy(
        blocks_per_sm=blocks,
        warps_per_sm=blocks * warps_per_block,
        max_warps_per_sm=limits.max_warps_per_sm,
        limiters=tuple(name for name, value in allowed.items() if value == blocks),
        limits=allowed,
        allocated_registers_per_block=allocated_registers,
        allocated_smem_bytes_per_block=allocated_smem_bytes,
    )


def _ceil_div(value: int, unit: int) -> int:
    return -(-value // unit)


def _round_up(value: int, unit: int) -> int:
    return _ceil_div(value, unit) * unit
