"""A short estimate of a kernel's time, for choosing among kernels that nobody has measured.

Where the card and the kernel are known it is the model's prediction (see model.predict) with what
that lower bound leaves out: units that do not overlap perfectly, schedulers that have no warp,
clusters that hang over the edge, launches, scratch memory. Where the card is not known it is wave
quantisation alone: the multiply-adds of the multiprocessor that has most blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import ceil

from gemm_lab.core.problem import GemmProblem
from gemm_lab.errors import UsageError
from gemm_lab.lab.choice_prospects import Prospect
from gemm_lab.model import BoundName, Device, KernelShape, peak_tflops, predict

__all__ = ["Estimate", "copies_ms", "estimate", "wave_cost"]

# A launch that waits for the one before, and a call that fills an empty card.
_LAUNCH_MS = 0.003
# Units that overlap imperfectly: between 1 (one after the other) and infinity (perfectly).
_OVERLAP = 4.0
_SCHEDULERS = 4
_IN_SM = {BoundName.FMA, BoundName.TENSOR, BoundName.REGISTERS, BoundName.ISSUE, BoundName.SMEM}
# A copy fills its target, reads the operand and writes it: memory passes, and launches.
_COPY_PASSES, _COPY_LAUNCHES = 3, 2
# C goes back as well.
_C_PASSES, _C_LAUNCHES = 5, 3
# Multiply-adds that an operand's element, and a part of a split sum, are worth.
_OPERAND_WORK = 32
_PART_WORK = 100_000
# Without a card to count by, a middling one.
_SOME_SMS = 100


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """`cost` ranks; `time_ms` is the same in milliseconds where the card is known.

    `parts` are the milliseconds of each thing that takes time, by name, where the model knows the
    kernel: units at work, multiprocessors that idle in the last wave, launches, scratch memory.
    """

    cost: float
    time_ms: float | None
    why: str
    parts: Mapping[str, float] = field(default_factory=dict)


def estimate(
    prospect: Prospect, problem: GemmProblem, *, card: Device | None, sm_count: int | None
) -> Estimate:
    """How long one call takes, roughly; infinite where the model says that it cannot run."""
    sm_count = sm_count or (card.sm_count if card else _SOME_SMS)
    if card is None or prospect.kernel is None:
        return _by_waves(prospect, problem, card, sm_count)
    kernel = prospect.kernel
    whole = _in_whole_clusters(kernel, problem)
    try:
        found = predict(card, kernel, whole)
    except UsageError as error:
        return Estimate(cost=float("inf"), time_ms=None, why=error.message)
    waves = found.waves
    resident = min(found.occupancy.blocks_per_sm, ceil(waves.blocks / sm_count)) * kernel.warps
    idle = max(1.0, _SCHEDULERS / resident)
    times = {b.name: b.time_ms * (idle if b.name in _IN_SM else 1.0) for b in found.bounds}
    time_ms = sum(t**_OVERLAP for t in times.values()) ** (1 / _OVERLAP)
    beside = _beside(prospect, problem, card, sm_count)
    time_ms += sum(beside.values())
    text = f"{waves.blocks:,} blocks on {sm_count} multiprocessors, waits for {found.bound.value}"
    # A unit inside a multiprocessor is charged for the one with most blocks; the others idle.
    busy = {n.value: t * (waves.efficiency if n in _IN_SM else 1.0) for n, t in times.items()}
    tail = max((t for n, t in times.items() if n in _IN_SM), default=0.0) * (1 - waves.efficiency)
    return Estimate(
        cost=time_ms,
        time_ms=time_ms,
        why=text,
        parts={**busy, "wave tail": tail, **beside},
    )


def copies_ms(problem: GemmProblem, operands: Iterable[str], card: Device) -> float:
    """Milliseconds of copying operands ("a", "b", "c") to where a kernel can read them."""
    s = problem.shape
    size, out = problem.dtype.storage.size_bytes, problem.out.size_bytes
    once = {"a": s.m * s.k * size, "b": s.k * s.n * size, "c": s.m * s.n * out}
    found = 0.0
    for name in operands:
        passes, launches = (
            (_C_PASSES, _C_LAUNCHES) if name == "c" else (_COPY_PASSES, _COPY_LAUNCHES)
        )
        moved = passes * s.batch * once[name]
        found += launches * _LAUNCH_MS + moved / (card.dram_gb_s * 1e9) * 1e3
    return found


def _in_whole_clusters(k: KernelShape, problem: GemmProblem) -> GemmProblem:
    """The product grown to what whole clusters of blocks cover."""
    s = problem.shape
    if k.cluster_m == k.cluster_n == 1:
        return problem
    step_m, step_n = k.block_m * k.cluster_m, k.block_n * k.cluster_n
    tiles_m, tiles_n = ceil(s.m / step_m) * k.cluster_m, ceil(s.n / step_n) * k.cluster_n
    m = s.m if tiles_m == ceil(s.m / k.block_m) else tiles_m * k.block_m
    n = s.n if tiles_n == ceil(s.n / k.block_n) else tiles_n * k.block_n
    return replace(problem, shape=replace(s, m=m, n=n))


def _beside(
    prospect: Prospect, problem: GemmProblem, card: Device, sm_count: int
) -> dict[str, float]:
    """Milliseconds of launches and of scratch memory that is written and read."""
    scratch = prospect.workspace_bytes(problem, sm_count)
    rate = card.l2_gb_s if card.l2_gb_s and 2 * scratch < card.l2_bytes else card.dram_gb_s
    launches = prospect.launch_count(problem, sm_count)
    return {
        "launches": launches * _LAUNCH_MS,
        "scratch memory": 2 * scratch / (rate * 1e9) * 1e3,
    }


def wave_cost(kernel: KernelShape | None, problem: GemmProblem, *, sm_count: int | None) -> float:
    """Multiply-adds of the multiprocessor that has most blocks, and what goes with them."""
    return _waves(kernel, problem, sm_count or _SOME_SMS)[0]


def _waves(kernel: KernelShape | None, problem: GemmProblem, sm_count: int) -> tuple[float, int]:
    s = problem.shape
    block_m, block_n, block_k, split = 128, 128, 32, 1
    if kernel is not None:
        block_m, block_n, block_k = kernel.block_m, kernel.block_n, kernel.block_k
        split = kernel.split_k
        s = _in_whole_clusters(kernel, problem).shape
    blocks = ceil(s.m / block_m) * ceil(s.n / block_n) * split * s.batch
    depth = ceil(ceil(s.k / split) / block_k) * block_k
    # Operands of a tile pass once for each of its K slices: small tiles have less to do with them.
    tile = block_m * block_n + _OPERAND_WORK * (block_m + block_n)
    return float(ceil(blocks / sm_count) * depth * tile + _PART_WORK * split), blocks


def _by_waves(
    prospect: Prospect, problem: GemmProblem, card: Device | None, sm_count: int
) -> Estimate:
    work, blocks = _waves(prospect.kernel, problem, sm_count)
    time_ms = None
    if card is not None:
        rate = peak_tflops(card, problem.dtype.name) * 1e12 / card.sm_count
        beside = _beside(prospect, problem, card, sm_count)
        time_ms = 2 * work / rate * 1e3 + sum(beside.values())
    return Estimate(
        cost=work if time_ms is None else time_ms,
        time_ms=time_ms,
        why=f"{blocks:,} blocks, {ceil(blocks / sm_count):,} on the multiprocessor that has most",
    )
