"""Bandwidth over occupancy: where more warps stop helping.

A kernel of ours reads (or copies) a large array with a chosen number of bytes on the way a thread.
Dynamic shared memory that it does not use is added to each block, so that fewer blocks fit on a
multiprocessor. On a GPU the bandwidth is measured; without one Little's law says what to expect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from gemm_lab import jit
from gemm_lab.core.backend import Argument
from gemm_lab.errors import UsageError
from gemm_lab.gpu.stopwatch import CudaStopwatch
from gemm_lab.lab.probes import WORD_TYPES, Probes, long_argument, probe_source
from gemm_lab.model import (
    BlockResources,
    Device,
    OccupancyPoint,
    hardware_occupancy,
    occupancy_paddings,
    occupancy_prediction,
    saturation_occupancy,
)

__all__ = ["Access", "MeasuredPoint", "OccupancyExperiment", "knee", "occupancy_experiment"]

Access = Literal["read", "copy"]
THREADS = 256
MAX_UNROLL = 16
_BYTES = 1 << 30
# From where on more warps are said not to help.
_SATURATED = 0.95


@dataclass(frozen=True, kw_only=True)
class MeasuredPoint:
    """One padding: occupancy (a fraction), what the law expects, what was measured (GB/s)."""

    smem_pad_bytes: int
    blocks_per_sm: int
    occupancy: float
    bytes_in_flight: float
    predicted_gb_s: float | None
    measured_gb_s: float | None


@dataclass(frozen=True, kw_only=True)
class OccupancyExperiment:
    """A curve, lowest occupancy first.

    Attributes:
        bytes_per_thread: loads of one thread that are on the way at once, in bytes.
        expected_knee, measured_knee: occupancy from which more warps stop helping; None where
            even all warps do not suffice, or nothing was measured.
    """

    device: str
    access: Access
    word_bytes: int
    unroll: int
    bytes_per_thread: int
    points: tuple[MeasuredPoint, ...]
    expected_knee: float | None
    measured_knee: float | None
    notes: tuple[str, ...] = ()


def occupancy_experiment(
    device: Device,
    *,
    backend: Any = None,
    access: Access = "read",
    word_bytes: int = 4,
    unroll: int = 1,
    paddings_bytes: Sequence[int] | None = None,
    stopwatch: Any = None,
    cache: jit.Cache | None = None,
    progress: Callable[[str], None] | None = None,
) -> OccupancyExperiment:
    """The curve of a card, measured where `backend` is its GPU, else predicted.

    Args:
        word_bytes, unroll: width of a load (4, 8, 16) and how many a thread issues at once: the
            more bytes a thread keeps on the way, the fewer warps are needed.
        paddings_bytes: shared memory to add; one for each number of resident blocks when None.

    UsageError for a padding with which no block fits, and, without a GPU, for a card whose
    latency nobody knows.
    """
    if word_bytes not in WORD_TYPES or not 1 <= unroll <= MAX_UNROLL:
        raise UsageError(
            f"{unroll} loads of {word_bytes} bytes: cannot be had",
            hint=f"4, 8 or 16 bytes; 1 to {MAX_UNROLL} loads",
        )
    block = _block(device, backend, access, word_bytes, unroll, cache)
    if paddings_bytes is None:
        paddings_bytes = occupancy_paddings(device.limits, block)
    per_thread = word_bytes * unroll
    notes: list[str] = []
    predicted: tuple[OccupancyPoint, ...] | None
    # Every byte that is read is written too, without anybody waiting for it.
    share = 2 if access == "copy" else 1
    try:
        predicted = occupancy_prediction(
            device, block, paddings_bytes, bytes_per_thread=per_thread * share
        )
        expected = saturation_occupancy(device, bytes_per_thread=per_thread * share)
    except UsageError as error:
        if backend is None or "is known" not in error.message:
            raise
        predicted, expected = None, None
        notes.append(f"no prediction: {error.message}")
    measured: list[float] | None = None
    if backend is not None:
        measured = _measure(
            backend, device, block, paddings_bytes, access, word_bytes, unroll,
            stopwatch, cache, progress,
        )  # fmt: skip
    points = []
    for i, pad in enumerate(paddings_bytes):
        found = hardware_occupancy(device.limits, _padded(block, pad))
        points.append(
            MeasuredPoint(
                smem_pad_bytes=pad,
                blocks_per_sm=found.blocks_per_sm,
                occupancy=found.fraction,
                bytes_in_flight=found.blocks_per_sm * THREADS * per_thread * device.sm_count,
                predicted_gb_s=None if predicted is None else predicted[i].predicted_gb_s,
                measured_gb_s=None if measured is None else measured[i],
            )
        )
    points.sort(key=lambda p: (p.occupancy, -p.smem_pad_bytes))
    return OccupancyExperiment(
        device=device.name,
        access=access,
        word_bytes=word_bytes,
        unroll=unroll,
        bytes_per_thread=per_thread,
        points=tuple(points),
        expected_knee=expected,
        measured_knee=knee(points),
        notes=tuple(notes),
    )


def knee(points: Sequence[MeasuredPoint]) -> float | None:
    """The least occupancy that reaches 95% of the best bandwidth measured; None without any."""
    timed = [p for p in points if p.measured_gb_s is not None]
    if not timed:
        return None
    best = max(p.measured_gb_s or 0.0 for p in timed)
    return min(p.occupancy for p in timed if (p.measured_gb_s or 0.0) >= _SATURATED * best)


def _padded(block: BlockResources, pad_bytes: int) -> BlockResources:
    return replace(block, dynamic_smem_bytes=block.dynamic_smem_bytes + pad_bytes)


def _block(
    device: Device,
    backend: Any,
    access: Access,
    word_bytes: int,
    unroll: int,
    cache: jit.Cache | None,
) -> BlockResources:
    """What a block of the kernel needs; without a compiler for the card registers are no limit."""
    arch = device.arch if backend is None else backend.arch
    rendered = probe_source(word_bytes=word_bytes, unroll=unroll, copy=access == "copy", arch=arch)
    registers = 0
    try:
        resources = jit.compile_kernel(rendered, cache=cache).resources["stream"]
        registers = resources.registers_per_thread
    except UsageError:
        pass  # an architecture that this NVRTC does not know
    return BlockResources(
        threads=THREADS,
        registers_per_thread=registers,
        static_smem_bytes=0,
        dynamic_smem_bytes=0,
    )


def _measure(
    backend: Any,
    device: Device,
    block: BlockResources,
    paddings_bytes: Sequence[int],
    access: Access,
    word_bytes: int,
    unroll: int,
    stopwatch: Any,
    cache: jit.Cache | None,
    progress: Callable[[str], None] | None,
) -> list[float]:
    """GB/s at each padding, with exactly the blocks that are resident at once."""
    say = progress or (lambda _: None)
    with backend.on_device("the occupancy experiment"):
        probes = Probes(
            backend,
            stopwatch or CudaStopwatch(backend.device),
            word_bytes=word_bytes,
            unroll=unroll,
            copy=access == "copy",
            cache=cache,
        )
        try:
            count = min(_BYTES, backend.free_bytes() // 4) // word_bytes
            source = probes.alloc(count * word_bytes, 1)
            target = probes.alloc(count * word_bytes if access == "copy" else 16)
            arguments: list[Argument] = [
                probes.pointer(source), probes.pointer(target), long_argument(count),
            ]  # fmt: skip
            moved = count * word_bytes * (2 if access == "copy" else 1)
            rates = []
            for pad in paddings_bytes:
                resident = hardware_occupancy(device.limits, _padded(block, pad)).blocks_per_sm
                say(f"{resident} blocks a multiprocessor")
                run = probes.prepare(
                    "stream", arguments, blocks=resident * backend.sm_count, threads=THREADS,
                    smem_bytes=pad,
                )  # fmt: skip
                rates.append(moved / probes.median_ms(run) / 1e6)
            return rates
        finally:
            probes.free()
