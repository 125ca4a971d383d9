"""Little's law: bytes in flight = bandwidth x latency (Volkov, "Better performance at lower
occupancy", GTC 2010; CUDA C++ Best Practices Guide)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gemm_lab.errors import UsageError
from gemm_lab.model.devices import Device

__all__ = [
    "BandwidthPoint",
    "LittlesLaw",
    "bandwidth_curve",
    "bandwidth_gb_s",
    "bytes_per_cycle",
    "littles_law",
]


@dataclass(frozen=True, kw_only=True)
class LittlesLaw:
    """What must be on its way at any time for a level to run at full rate.

    `latency_cycles` and `bytes_per_cycle` count SM clock cycles.
    """

    level: str
    gb_s: float
    latency_cycles: float
    bytes_per_cycle: float
    bytes_in_flight: float
    bytes_in_flight_per_sm: float


@dataclass(frozen=True, kw_only=True)
class BandwidthPoint:
    """Bandwidth that Little's law predicts at one occupancy.

    `saturated` is True where the level's own rate is the limit, not the bytes in flight.
    """

    occupancy: float
    warps_per_sm: float
    bytes_in_flight: float
    gb_s: float
    saturated: bool


def bytes_per_cycle(gb_s: float, clock_mhz: float) -> float:
    """A rate in 10^9 bytes a second as bytes a clock cycle."""
    return gb_s * 1e9 / (clock_mhz * 1e6)


def littles_law(device: Device, level: str = "dram") -> LittlesLaw:
    """Bytes in flight that keep `level` ("dram" or "l2") busy.

    Raises UsageError where the table knows no rate or latency of that level.
    """
    rate, latency = _rate_and_latency(device, level)
    each = bytes_per_cycle(rate, device.boost_clock_mhz)
    return LittlesLaw(
        level=level,
        gb_s=rate,
        latency_cycles=latency,
        bytes_per_cycle=each,
        bytes_in_flight=each * latency,
        bytes_in_flight_per_sm=each * latency / device.sm_count,
    )


def bandwidth_gb_s(device: Device, bytes_in_flight: float, level: str = "dram") -> float:
    """min(rate, bytes in flight / latency), 10^9 bytes a second."""
    rate, latency = _rate_and_latency(device, level)
    return min(rate, bytes_in_flight / latency * device.boost_clock_mhz * 1e6 / 1e9)


def bandwidth_curve(
    device: Device,
    occupancies: Sequence[float],
    *,
    bytes_per_thread: int = 4,
    level: str = "dram",
) -> tuple[BandwidthPoint, ...]:
    """Bandwidth over occupancy for a kernel whose threads keep `bytes_per_thread` on the way.

    `bytes_per_thread` is the vector width times the independent loads of one thread; occupancies
    are fractions of the SM's warps.
    """
    if bytes_per_thread < 1:
        raise UsageError(f"bytes_per_thread = {bytes_per_thread}: must be 1 or more")
    limits = device.limits
    points: list[BandwidthPoint] = []
    for occupancy in occupancies:
        if not 0 < occupancy <= 1:
            raise UsageError(f"occupancy {occupancy}: must lie above 0 and not above 1")
        warps = occupancy * limits.max_warps_per_sm
        in_flight = warps * limits.warp_size * bytes_per_thread * device.sm_count
        rate = bandwidth_gb_s(device, in_flight, level)
        points.append(
            BandwidthPoint(
                occupancy=occupancy,
                warps_per_sm=warps,
                bytes_in_flight=in_flight,
                gb_s=rate,
                saturated=in_flight >= littles_law(device, level).bytes_in_flight,
            )
        )
    return tuple(points)


def _rate_and_latency(device: Device, level: str) -> tuple[float, float]:
    found = {
        "dram": (device.dram_gb_s, device.dram_latency_cycles),
        "l2": (device.l2_gb_s, device.l2_latency_cycles),
    }
    if level not in found:
        raise UsageError(f"unknown level {level!r}", hint="levels: dram, l2")
    rate, latency = found[level]
    if rate is None or latency is None:
        missing = f"{level}_gb_s" if rate is None else f"{level}_latency_cycles"
        raise UsageError(
            f"{device.name}: no {missing} is known",
            hint=f"gemm-lab devices --measure finds it, or set devices.{device.key}.{missing}",
        )
    return rate, latency
