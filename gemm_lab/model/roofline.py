"""The roofline: attainable = min(peak, intensity x bandwidth) (Williams, Waterman, Patterson,
CACM 52(4), 2009), with one slope for each level of the memory."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gemm_lab.core.problem import GemmProblem
from gemm_lab.errors import UsageError
from gemm_lab.model.devices import Device, peak_tflops

__all__ = [
    "Ceiling",
    "Level",
    "NoReuse",
    "Roofline",
    "compulsory_bytes",
    "ideal_intensity",
    "no_reuse",
    "no_reuse_intensity",
    "roofline",
    "tile_intensity",
]


class Level(StrEnum):
    """A level of the memory, the far one first."""

    DRAM = "dram"
    L2 = "l2"
    SMEM = "shared memory"


@dataclass(frozen=True, kw_only=True)
class Ceiling:
    """One slope of the roofline.

    `ridge_flop_per_byte` is the intensity from which the peak is the limit; `crossover_n` the
    edge of the square product that reaches it when every element crosses this level once.
    """

    level: Level
    gb_s: float
    ridge_flop_per_byte: float
    crossover_n: float

    def attainable_tflops(self, flop_per_byte: float) -> float:
        """This slope alone at an intensity, 10^12 operations a second."""
        return flop_per_byte * self.gb_s / 1e3


@dataclass(frozen=True, kw_only=True)
class Roofline:
    """Peak and slopes of a card for one arithmetic; levels without a known rate are left out."""

    device: str
    dtype: str
    peak_tflops: float
    ceilings: tuple[Ceiling, ...]

    def ceiling(self, level: Level) -> Ceiling:
        """The slope of a level; UsageError where its rate is not known."""
        for found in self.ceilings:
            if found.level == level:
                return found
        raise UsageError(f"no {level.value} rate is known for {self.device}")

    def attainable_tflops(self, flop_per_byte: float, level: Level = Level.DRAM) -> float:
        """min(peak, intensity x bandwidth of `level`), 10^12 operations a second."""
        return min(self.peak_tflops, self.ceiling(level).attainable_tflops(flop_per_byte))


def roofline(
    device: Device, dtype: str = "fp32", *, input_bytes: int = 4, output_bytes: int = 4
) -> Roofline:
    """The roofline of a card for an arithmetic; element sizes place the crossover only."""
    peak = peak_tflops(device, dtype)
    rates = {Level.DRAM: device.dram_gb_s, Level.L2: device.l2_gb_s, Level.SMEM: device.smem_gb_s}
    if device.measured is not None and device.measured.smem_gb_s is not None:
        rates[Level.SMEM] = device.measured.smem_gb_s
    ceilings: list[Ceiling] = []
    for level, rate in rates.items():
        if rate is None:
            continue
        ridge = peak * 1e3 / rate
        # A square product has 2n^3 operations on (2 in + out) n^2 bytes.
        crossover = ridge * (2 * input_bytes + output_bytes) / 2
        ceilings.append(
            Ceiling(level=level, gb_s=rate, ridge_flop_per_byte=ridge, crossover_n=crossover)
        )
    return Roofline(device=device.key, dtype=dtype, peak_tflops=peak, ceilings=tuple(ceilings))


def no_reuse_intensity(input_bytes: int = 4) -> float:
    """Two operations for each pair of elements, flop a byte: 0.25 in fp32."""
    return 2 / (2 * input_bytes)


def tile_intensity(tile: float, input_bytes: int = 4) -> float:
    """Flop a byte of inputs when a block keeps a tile x tile of C: tile / 4 in fp32.

    Global traffic is 2 n^3 / tile elements, as each block reads a tile-wide band of A and of B.
    """
    return tile * no_reuse_intensity(input_bytes)


def compulsory_bytes(problem: GemmProblem) -> int:
    """A and B read once, C written once (and read once if beta is not 0)."""
    s = problem.shape
    size = problem.dtype.storage.size_bytes
    outputs = s.m * s.n * problem.out.size_bytes * (1 if problem.beta == 0 else 2)
    return s.batch * ((s.m * s.k + s.k * s.n) * size + outputs)


def ideal_intensity(problem: GemmProblem) -> float:
    """Flop a byte when everything crosses once: n / 6 for a square product in fp32."""
    moved = compulsory_bytes(problem)
    return problem.shape.flop_count / moved if moved else 0.0


@dataclass(frozen=True, kw_only=True)
class NoReuse:
    """A product at its limits: arithmetic alone, ideal traffic, and no reuse at all.

    Times in ms; `*_ratio` is the time over that of the arithmetic.
    """

    flop_count: int
    compute_ms: float
    ideal_bytes: int
    ideal_dram_ms: float
    no_reuse_bytes: int
    no_reuse_dram_ms: float
    no_reuse_dram_ratio: float
    no_reuse_l2_ms: float | None
    no_reuse_l2_ratio: float | None


def no_reuse(device: Device, problem: GemmProblem) -> NoReuse:
    """The two ends between which every kernel lies."""
    flop = problem.shape.flop_count
    compute_ms = flop / (peak_tflops(device, problem.dtype.name) * 1e12) * 1e3
    moved = flop * problem.dtype.storage.size_bytes
    dram_ms = moved / (device.dram_gb_s * 1e9) * 1e3
    l2_ms = None if device.l2_gb_s is None else moved / (device.l2_gb_s * 1e9) * 1e3
    ideal = compulsory_bytes(problem)
    return NoReuse(
        flop_count=flop,
        compute_ms=compute_ms,
        ideal_bytes=ideal,
        ideal_dram_ms=ideal / (device.dram_gb_s * 1e9) * 1e3,
        no_reuse_bytes=moved,
        no_reuse_dram_ms=dram_ms,
        no_reuse_dram_ratio=dram_ms / compute_ms if flop else 0.0,
        no_reuse_l2_ms=l2_ms,
        no_reuse_l2_ratio=None if l2_ms is None or not flop else l2_ms / compute_ms,
    )
