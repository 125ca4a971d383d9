"""Bandwidth over occupancy: which shared-memory padding gives which occupancy, and what Little's
law expects there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gemm_lab.core.arch import ArchLimits
from gemm_lab.errors import UsageError
from gemm_lab.model.devices import Device
from gemm_lab.model.littles_law import bandwidth_curve, littles_law
from gemm_lab.model.occupancy import BlockResources, Occupancy, hardware_occupancy
from gemm_lab.model.what_if import next_steps

__all__ = [
    "OccupancyPoint",
    "occupancy_paddings",
    "occupancy_prediction",
    "saturation_occupancy",
]


@dataclass(frozen=True, kw_only=True)
class OccupancyPoint:
    """One padding: dynamic shared memory added to each block, what stays resident, GB/s."""

    smem_pad_bytes: int
    occupancy: Occupancy
    bytes_in_flight: float
    predicted_gb_s: float
    saturated: bool


def occupancy_paddings(limits: ArchLimits, block: BlockResources) -> tuple[int, ...]:
    """The least padding for each number of resident blocks that can be had, 0 first.

    Fewer than the block's own resident blocks only: padding cannot add any.
    """
    now = hardware_occupancy(limits, block).blocks_per_sm
    steps = {step.blocks_per_sm: step.most_smem_bytes for step in next_steps(limits, block)}
    pads = {0}
    for blocks in range(1, now):
        more = steps.get(blocks + 1)
        if more is None:
            continue
        # One byte past what still lets one more block in.
        pad = more + 1 - block.smem_bytes
        padded = replace(block, dynamic_smem_bytes=block.dynamic_smem_bytes + max(pad, 0))
        if pad > 0 and hardware_occupancy(limits, padded).blocks_per_sm == blocks:
            pads.add(pad)
    return tuple(sorted(pads))


def occupancy_prediction(
    device: Device,
    block: BlockResources,
    smem_pads_bytes: Sequence[int],
    *,
    bytes_per_thread: int,
    level: str = "dram",
) -> tuple[OccupancyPoint, ...]:
    """What Little's law expects of a streaming kernel at each padding.

    `bytes_per_thread` is what one thread keeps on the way: vector width times independent loads.
    Raises UsageError for a padding with which no block fits.
    """
    points: list[OccupancyPoint] = []
    for pad in smem_pads_bytes:
        padded = replace(block, dynamic_smem_bytes=block.dynamic_smem_bytes + pad)
        found = hardware_occupancy(device.limits, padded)
        if found.blocks_per_sm == 0:
            raise UsageError(
                f"padding of {pad} bytes: no block fits on {device.name}",
                hint=f"at most {device.limits.smem_per_block_optin_bytes - block.smem_bytes}",
            )
        (point,) = bandwidth_curve(
            device, [found.fraction], bytes_per_thread=bytes_per_thread, level=level
        )
        points.append(
            OccupancyPoint(
                smem_pad_bytes=pad,
                occupancy=found,
                bytes_in_flight=point.bytes_in_flight,
                predicted_gb_s=point.gb_s,
                saturated=point.saturated,
            )
        )
    return tuple(points)


def saturation_occupancy(
    device: Device, *, bytes_per_thread: int, level: str = "dram"
) -> float | None:
    """Occupancy from which more warps stop helping; None where even all warps do not suffice."""
    limits = device.limits
    needed = littles_law(device, level).bytes_in_flight_per_sm
    fraction = needed / (limits.max_warps_per_sm * limits.warp_size * bytes_per_thread)
    return fraction if fraction <= 1 else None
