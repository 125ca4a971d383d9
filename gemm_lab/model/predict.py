"""Predicted time: the slowest of what a kernel needs, and the one that it waits for named.

As with every roofline the time is a lower bound: units are taken to overlap perfectly.

Each unit gets the time that its share of the work takes at full rate. Units inside an SM are
charged for the SM with most blocks (wave quantisation), L2 and DRAM for the sum. Latency is a
bound of its own: with few blocks on an SM the loads of a K slice cannot hide behind the arithmetic
of another (Little's law).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import ceil

from gemm_lab.core.problem import GemmProblem
from gemm_lab.errors import UsageError
from gemm_lab.model.access import SECTOR_BYTES, WAVEFRONT_BYTES
from gemm_lab.model.devices import Device, peak_tflops
from gemm_lab.model.kernel_shape import KernelShape
from gemm_lab.model.occupancy import Occupancy, hardware_occupancy
from gemm_lab.model.traffic import Grid, Traffic, grid_of, traffic

__all__ = ["Bound", "BoundName", "Prediction", "UnitClass", "Waves", "predict"]

_ISSUE_PER_CYCLE = 4  # one warp instruction for each of the four schedulers
# NOTE: measured, not documented. An fp32 outer product that reads its operands from shared memory
# and does nothing else reaches 52 to 55.6 of 66.9 TFLOP/s on an H200: register ports hold it back.
_REGISTER_PORT_SHARE = 0.79
_WARP = 32


class BoundName(StrEnum):
    """What a kernel may wait for."""

    FMA = "fma pipe"
    TENSOR = "tensor pipe"
    REGISTERS = "register ports"
    ISSUE = "issue slots"
    L1 = "l1"
    SMEM = "shared memory"
    L2 = "l2"
    DRAM = "dram"
    LATENCY = "latency"


class UnitClass(StrEnum):
    """The same as Nsight Compute groups it: SM, L1/TEX (shared memory is part of it), L2, DRAM."""

    SM = "sm"
    L1TEX = "l1tex"
    L2 = "l2"
    DRAM = "dram"


_CLASS = {
    BoundName.FMA: UnitClass.SM,
    BoundName.TENSOR: UnitClass.SM,
    BoundName.ISSUE: UnitClass.SM,
    BoundName.L1: UnitClass.L1TEX,
    BoundName.SMEM: UnitClass.L1TEX,
    BoundName.L2: UnitClass.L2,
    BoundName.DRAM: UnitClass.DRAM,
}


@dataclass(frozen=True, kw_only=True)
class Bound:
    """One unit: the time that it alone would need, and its share of the predicted time.

    `unit_class` is None for latency and register ports, which no counter of throughput shows.
    `share` is the fraction of its peak at which the unit would be seen to run.
    """

    name: BoundName
    unit_class: UnitClass | None
    time_ms: float
    share: float


@dataclass(frozen=True, kw_only=True)
class Waves:
    """How the blocks of a launch fall on the SMs.

    `efficiency` is the mean over the most loaded SM's blocks: 1 when every SM has as many.
    """

    blocks: int
    blocks_per_wave: int
    waves: float
    tail_blocks: int
    efficiency: float


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """Time and bound of one launch.

    Attributes:
        bounds: slowest first; units whose rate is not known are missing.
        bound: what the kernel waits for.
        busiest: the busiest unit that has a counter: its class is what a profiler shows highest.
        tflops: useful work over the predicted time.
    """

    time_ms: float
    tflops: float
    share_of_peak: float
    bounds: tuple[Bound, ...]
    bound: BoundName
    busiest: Bound
    waves: Waves
    occupancy: Occupancy
    traffic: Traffic


def predict(device: Device, shape: KernelShape, problem: GemmProblem) -> Prediction:
    """Predict a launch.

    Raises UsageError for an empty product, a kernel that does not fit on an SM, or a dtype for
    which the card has no peak.
    """
    s = problem.shape
    if 0 in (s.m, s.n, s.k, s.batch):
        raise UsageError(f"{s}: nothing is multiplied", hint="m, n, k and batch of 1 and up")
    peak = peak_tflops(device, problem.dtype.name)
    occupancy = hardware_occupancy(device.limits, shape.resources)
    if occupancy.blocks_per_sm == 0:
        limiters = ", ".join(x.value for x in occupancy.limiters)
        raise UsageError(f"the kernel does not fit on {device.name}: {limiters}")
    grid = grid_of(shape, problem)
    resident = occupancy.blocks_per_sm * device.sm_count
    moved = traffic(
        shape, problem, l2_cache_bytes=device.l2_bytes, resident_blocks=min(resident, grid.blocks)
    )
    waves = _waves(grid, device.sm_count, occupancy.blocks_per_sm)
    slice_ = _Slice.of(device, shape, problem, grid, moved)
    times = _times(device, shape, problem, grid, moved, slice_, waves)
    slowest = max(times.values())
    bounds = tuple(
        Bound(name=name, unit_class=_CLASS.get(name), time_ms=time, share=time / slowest)
        for name, time in sorted(times.items(), key=lambda item: -item[1])
    )
    tflops = s.flop_count / (slowest * 1e-3) / 1e12
    return Prediction(
        time_ms=slowest,
        tflops=tflops,
        share_of_peak=tflops / peak,
        bounds=bounds,
        bound=bounds[0].name,
        busiest=next(b for b in bounds if b.unit_class is not None),
        waves=waves,
        occupancy=occupancy,
        traffic=moved,
    )


def _waves(grid: Grid, sm_count: int, blocks_per_sm: int) -> Waves:
    per_wave = sm_count * blocks_per_sm
    busiest = ceil(grid.blocks / sm_count)
    return Waves(
        blocks=grid.blocks,
        blocks_per_wave=per_wave,
        waves=grid.blocks / per_wave,
        tail_blocks=grid.blocks % per_wave,
        efficiency=grid.blocks / (sm_count * busiest),
    )


@dataclass(frozen=True, kw_only=True)
class _Slice:
    """Cycles of one SM that one K slice of one block takes in each unit."""

    arithmetic: float
    issue: float
    shared: float
    l1: float

    @classmethod
    def of(
        cls,
        device: Device,
        shape: KernelShape,
        problem: GemmProblem,
        grid: Grid,
        moved: Traffic,
    ) -> _Slice:
        passes = grid.blocks * grid.k_tiles
        peak = peak_tflops(device, problem.dtype.name)
        per_cycle = peak * 1e12 / (device.sm_count * device.boost_clock_mhz * 1e6)
        # A block multiplies its whole tile, also where it hangs over the edge.
        multiply_adds = shape.block_m * shape.block_n * shape.block_k
        shared = (moved.shared_load_wavefronts + moved.shared_store_wavefronts) / passes
        loads = moved.shared_load_requests / passes + moved.load_requests / passes
        issue = 0.0
        if shape.unit == "cuda_core":
            stores = moved.shared_store_wavefronts / passes
            issue = (multiply_adds / _WARP + loads + stores) / _ISSUE_PER_CYCLE
        return cls(
            arithmetic=2 * multiply_adds / per_cycle,
            issue=issue,
            shared=shared,
            l1=moved.l1_global_cycles / passes,
        )

    @property
    def l1tex(self) -> float:
        """Shared memory and L1 are one unit."""
        return self.shared + self.l1

    @property
    def throughput(self) -> float:
        """Cycles when everything overlaps."""
        return max(self.arithmetic, self.issue, self.l1tex)


def _times(
    device: Device,
    shape: KernelShape,
    problem: GemmProblem,
    grid: Grid,
    moved: Traffic,
    slice_: _Slice,
    waves: Waves,
) -> dict[BoundName, float]:
    """Milliseconds by unit."""
    cycles = device.boost_clock_mhz * 1e3  # in a millisecond
    slices = ceil(grid.blocks / device.sm_count) * grid.k_tiles
    arithmetic = BoundName.TENSOR if shape.unit == "tensor" else BoundName.FMA
    l1tex = BoundName.SMEM if slice_.shared >= slice_.l1 else BoundName.L1
    smem_rate = device.sm_count * WAVEFRONT_BYTES * device.boost_clock_mhz * 1e6 / 1e9
    measured = device.measured.smem_gb_s if device.measured else None
    slow_down = smem_rate / measured if measured else 1.0
    times = {
        arithmetic: slices * slice_.arithmetic / cycles,
        l1tex: slices * slice_.l1tex * slow_down / cycles,
        BoundName.DRAM: moved.dram_bytes / (device.dram_gb_s * 1e9) * 1e3,
    }
    if shape.unit == "cuda_core":
        times[BoundName.ISSUE] = slices * slice_.issue / cycles
        times[BoundName.REGISTERS] = times[arithmetic] / _REGISTER_PORT_SHARE
    if device.l2_gb_s is not None:
        times[BoundName.L2] = moved.l2_bytes / (device.l2_gb_s * 1e9) * 1e3
    alone = _slice_alone_cycles(device, shape, problem, moved, slice_)
    if alone is not None:
        times[BoundName.LATENCY] = ceil(waves.waves) * grid.k_tiles * alone / cycles
    return times


def _slice_alone_cycles(
    device: Device, shape: KernelShape, problem: GemmProblem, moved: Traffic, slice_: _Slice
) -> float | None:
    """Cycles from one K slice of a block to its next, waiting included; None without latencies."""
    l2, dram, smem = (
        device.l2_latency_cycles,
        device.dram_latency_cycles,
        device.smem_latency_cycles,
    )
    if l2 is None or dram is None or smem is None:
        return None
    missed = min(1.0, moved.dram_bytes / moved.l2_bytes) if moved.l2_bytes else 0.0
    memory = l2 + (dram - l2) * missed
    work = slice_.throughput
    if shape.staging == "none":
        # Without barriers the other warps work on while one waits; the L1 answers as fast as
        # shared memory, and a warp needs a new sector every few steps of K.
        fresh = min(1.0, shape.block_k * problem.dtype.storage.size_bytes / SECTOR_BYTES)
        return smem + memory * fresh + work / shape.warps
    waiting = max(0.0, memory - (shape.stages - 1) * work)
    if shape.staging == "tma" and shape.stages > 1:
        return work + waiting
    return work + smem + waiting
