"""A card: what its maker states, and the ceilings measured on it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from typing import Any

from gemm_lab.core.arch import ArchLimits, arch_limits
from gemm_lab.errors import UsageError

__all__ = [
    "Device",
    "MeasuredCeilings",
    "find_device",
    "peak_tflops",
]

# The arithmetic of a user's dtype name: which peak, and how many products make one.
_PEAK_OF_DTYPE = {
    "tf32": ("tf32", 1),
    "fp32x3": ("tf32", 3),
    "fp16": ("fp16", 1),
    "bf16": ("bf16", 1),
    "fp8_e4m3": ("fp8", 1),
    "int8": ("int8", 1),
}


@dataclass(frozen=True, kw_only=True)
class MeasuredCeilings:
    """What the card at hand was seen to reach; None where nothing was measured.

    Rates are 10^9 bytes or 10^12 operations a second, latencies SM clock cycles.
    """

    sm_clock_mhz: float | None = None
    dram_gb_s: float | None = None
    l2_gb_s: float | None = None
    smem_gb_s: float | None = None
    fp32_tflops: float | None = None
    tensor_tflops: Mapping[str, float] = field(default_factory=dict)
    dram_latency_cycles: float | None = None
    l2_latency_cycles: float | None = None
    smem_latency_cycles: float | None = None
    source: str | None = None


@dataclass(frozen=True, kw_only=True)
class Device:
    """One card: what its maker states, and what was measured on it.

    Attributes:
        key: short name, as `--gpu` takes it.
        dram_gb_s, l2_gb_s: 10^9 bytes a second; l2_gb_s is None where no source is known.
        fp32_tflops, tensor_tflops: dense peaks, one multiply-add counted as two operations.
        dram_latency_cycles, ...: SM clock cycles of a dependent load; None where unknown.
        source: where the figures come from.
        measured: ceilings of the card at hand, which the model prefers when it is asked to.
    """

    key: str
    name: str
    aliases: tuple[str, ...]
    arch: str
    sm_count: int
    boost_clock_mhz: float
    dram_gb_s: float
    dram_bytes: int
    l2_bytes: int
    fp32_tflops: float
    tensor_tflops: Mapping[str, float]
    source: str
    power_w: float | None = None
    l2_gb_s: float | None = None
    dram_latency_cycles: float | None = None
    l2_latency_cycles: float | None = None
    smem_latency_cycles: float | None = None
    measured: MeasuredCeilings | None = None

    @property
    def limits(self) -> ArchLimits:
        """Limits of its architecture."""
        return arch_limits(self.arch)

    @property
    def smem_gb_s(self) -> float:
        """Shared memory of all SMs together: 32 banks of 4 bytes each clock (CUDA guide)."""
        return self.sm_count * 128 * self.boost_clock_mhz * 1e6 / 1e9

    def with_measured(self, measured: MeasuredCeilings) -> Device:
        """The same card with ceilings measured on it."""
        return replace(self, measured=measured)

    def calibrated(self) -> Device:
        """The card with every measured figure in place of the stated one; itself if none."""
        found = self.measured
        if found is None:
            return self
        known: dict[str, Any] = {
            f.name: getattr(found, f.name)
            for f in fields(found)
            if f.name not in ("sm_clock_mhz", "smem_gb_s", "tensor_tflops", "source")
            and getattr(found, f.name) is not None
        }
        if found.sm_clock_mhz is not None:
            known["boost_clock_mhz"] = found.sm_clock_mhz
        known["tensor_tflops"] = {**self.tensor_tflops, **found.tensor_tflops}
        return replace(self, **known)


def peak_tflops(device: Device, dtype: str) -> float:
    """Dense peak for an arithmetic ("fp32", "tf32", "fp32x3", ...), 10^12 operations a second.

    Raises UsageError when the card's units cannot do it.
    """
    if dtype == "fp32":
        return device.fp32_tflops
    if dtype not in _PEAK_OF_DTYPE:
        raise UsageError(
            f"unknown dtype {dtype!r}", hint=f"known: fp32, {', '.join(_PEAK_OF_DTYPE)}"
        )
    peak, products = _PEAK_OF_DTYPE[dtype]
    if peak not in device.tensor_tflops:
        has = ", ".join(["fp32", *device.tensor_tflops])
        raise UsageError(f"no {dtype} peak is known for {device.name}", hint=f"it has: {has}")
    return device.tensor_tflops[peak] / products


def find_device(name: str, devices: Mapping[str, Device]) -> Device:
    """The card of that key, name or alias; case, spaces and the maker's name do not matter.

    Raises UsageError with the nearest names when there is none.
    """
    wanted = _plain(name)
    by_name = {
        _plain(known): device
        for device in devices.values()
        for known in (device.key, device.name, *device.aliases)
    }
    if wanted in by_name:
        return by_name[wanted]
    near = get_close_matches(wanted, by_name, n=3, cutoff=0.6)
    keys = list(dict.fromkeys(by_name[n].key for n in near)) or list(devices)
    raise UsageError(f"unknown GPU {name!r}", hint=f"known: {', '.join(keys)}")


def _plain(name: str) -> str:
    words = re.sub(r"\b(nvidia|geforce|tesla|generation)\b", "", name.lower().replace("_", " "))
    return re.sub(r"[^a-z0-9]", "", words)
