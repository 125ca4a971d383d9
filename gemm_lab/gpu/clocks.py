"""Clocks and power of the card while something is measured; reads only, sets nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["ClockMeter", "ClockReading", "Clocks", "throttle_reasons"]

# nvmlClocksEventReasons, NVML API Reference; idle and the applications' own setting are no faults.
_REASONS = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}


@dataclass(frozen=True, kw_only=True)
class ClockReading:
    """One look at the card."""

    sm_mhz: int
    memory_mhz: int
    power_w: float
    temperature_c: int
    reasons: int


@dataclass(frozen=True, kw_only=True)
class Clocks:
    """What the card did during a measurement."""

    sm_mhz_median: int
    sm_mhz_min: int
    sm_mhz_max: int
    memory_mhz: int
    power_w_max: float
    temperature_c_max: int
    throttled: tuple[str, ...]


def throttle_reasons(bits: int) -> tuple[str, ...]:
    """NVML's event bits in words."""
    return tuple(text for bit, text in _REASONS.items() if bits & bit)


class ClockMeter:
    """Reads one device's clocks when asked; without NVML every reading is None."""

    def __init__(self, device: int) -> None:
        self.readings: list[ClockReading] = []
        self._nvml, self._handle = _open(device)

    @property
    def available(self) -> bool:
        """Whether NVML answers for this device (`pip install 'gemm-lab[clocks]'` adds it)."""
        return self._nvml is not None

    def read(self) -> ClockReading | None:
        """One reading, kept in `readings`."""
        nvml = self._nvml
        if nvml is None:
            return None
        try:
            reading = ClockReading(
                sm_mhz=int(nvml.nvmlDeviceGetClockInfo(self._handle, nvml.NVML_CLOCK_SM)),
                memory_mhz=int(nvml.nvmlDeviceGetClockInfo(self._handle, nvml.NVML_CLOCK_MEM)),
                power_w=nvml.nvmlDeviceGetPowerUsage(self._handle) / 1000.0,
                temperature_c=int(
                    nvml.nvmlDeviceGetTemperature(self._handle, nvml.NVML_TEMPERATURE_GPU)
                ),
                reasons=int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle)),
            )
        except nvml.NVMLError:
            return None  # some cards and some tenants are not told
        self.readings.append(reading)
        return reading

    def clocks(self) -> Clocks | None:
        """All readings together; None when there is none."""
        readings = self.readings
        if not readings:
            return None
        sm = sorted(r.sm_mhz for r in readings)
        bits = 0
        for reading in readings:
            bits |= reading.reasons
        return Clocks(
            sm_mhz_median=sm[len(sm) // 2],
            sm_mhz_min=sm[0],
            sm_mhz_max=sm[-1],
            memory_mhz=readings[-1].memory_mhz,
            power_w_max=max(r.power_w for r in readings),
            temperature_c_max=max(r.temperature_c for r in readings),
            throttled=throttle_reasons(bits),
        )


def _open(device: int) -> tuple[Any, Any]:
    try:
        import pynvml
    except ImportError:
        return None, None
    from gemm_lab.gpu._cuda import cuda

    try:
        pynvml.nvmlInit()
        # By bus id: NVML does not know CUDA_VISIBLE_DEVICES.
        bus_id = cuda().runtime.deviceGetPCIBusId(device)
        return pynvml, pynvml.nvmlDeviceGetHandleByPciBusId(bus_id.encode())
    except (pynvml.NVMLError, RuntimeError):
        return None, None
