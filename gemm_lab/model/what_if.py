"""What occupancy would be if a kernel used more or fewer registers, bytes or threads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from gemm_lab.core.arch import ArchLimits
from gemm_lab.model.occupancy import (
    BlockResources,
    Occupancy,
    hardware_occupancy,
    textbook_occupancy,
)

__all__ = ["OccupancyRow", "Step", "next_steps", "what_if"]


@dataclass(frozen=True, kw_only=True)
class OccupancyRow:
    """One line of the what-if table: a resource at another value, all else as it is.

    `changed` is "registers", "shared memory" or "threads"; `value` registers a thread, bytes a
    block or threads a block; `current` marks the block as it is.
    """

    changed: Literal["registers", "shared memory", "threads"]
    value: int
    current: bool
    textbook: Occupancy
    hardware: Occupancy


def what_if(
    limits: ArchLimits,
    block: BlockResources,
    *,
    registers: tuple[int, ...] = (32, 40, 48, 64, 80, 96, 128, 168, 255),
    smem_bytes: tuple[int, ...] = (0, 1024, 8192, 16384, 32768, 49152, 65536, 102400),
    threads: tuple[int, ...] = (64, 128, 256, 512, 1024),
) -> tuple[OccupancyRow, ...]:
    """Occupancy when one of the three resources changes; the block's own values are among them."""
    rows: list[OccupancyRow] = []
    for value in sorted({*registers, block.registers_per_thread}):
        rows.append(_row(limits, block, "registers", value))
    for value in sorted({*smem_bytes, block.smem_bytes}):
        rows.append(_row(limits, block, "shared memory", value))
    for value in sorted({*threads, block.threads}):
        rows.append(_row(limits, block, "threads", value))
    return tuple(rows)


def _row(
    limits: ArchLimits,
    block: BlockResources,
    changed: Literal["registers", "shared memory", "threads"],
    value: int,
) -> OccupancyRow:
    if changed == "registers":
        other, now = replace(block, registers_per_thread=value), block.registers_per_thread
    elif changed == "shared memory":
        other, now = replace(block, static_smem_bytes=0, dynamic_smem_bytes=value), block.smem_bytes
    else:
        other, now = replace(block, threads=value), block.threads
    return OccupancyRow(
        changed=changed,
        value=value,
        current=value == now,
        textbook=textbook_occupancy(limits, other),
        hardware=hardware_occupancy(limits, other),
    )


@dataclass(frozen=True, kw_only=True)
class Step:
    """The most that a block may use for `blocks_per_sm` of them to stay resident.

    None where even one register or byte a block would be too much for so many.
    """

    blocks_per_sm: int
    fraction: float
    most_registers_per_thread: int | None
    most_smem_bytes: int | None


def next_steps(limits: ArchLimits, block: BlockResources) -> tuple[Step, ...]:
    """For each number of resident blocks the registers and shared memory that it leaves."""
    warps = -(-block.threads // limits.warp_size)
    most_blocks = min(limits.max_blocks_per_sm, limits.max_warps_per_sm // warps)
    rows: list[Step] = []
    for blocks in range(1, most_blocks + 1):
        registers = _largest(
            limits.max_registers_per_thread,
            lambda r: _blocks(limits, threads=block.threads, registers_per_thread=r),
            blocks,
        )
        smem = _largest(
            limits.smem_per_block_optin_bytes,
            lambda b: _blocks(limits, threads=block.threads, dynamic_smem_bytes=b),
            blocks,
        )
        rows.append(
            Step(
                blocks_per_sm=blocks,
                fraction=blocks * warps / limits.max_warps_per_sm,
                most_registers_per_thread=registers,
                most_smem_bytes=smem,
            )
        )
    return tuple(rows)


def _blocks(limits: ArchLimits, **resources: int) -> int:
    return hardware_occupancy(limits, BlockResources(**resources)).blocks_per_sm


def _largest(most: int, blocks_at: Callable[[int], int], wanted: int) -> int | None:
    """Largest value in [1, most] that still lets `wanted` blocks in; blocks fall as it rises."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if blocks_at(middle) >= wanted else (low, middle - 1)
    return low or None
