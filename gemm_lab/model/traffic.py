"""What a kernel moves at each level: asked of the L1, between L1 and L2, from DRAM, in shared
memory.

A block reads a band of block_m rows of A and of block_n columns of B along all of K, so the L2
serves (n / block_n) x A + (m / block_m) x B, whatever the threads do inside the block: repeated
reads of a kernel without shared memory hit the L1, whose lines of a few K steps are in use by the
whole block. Between L2 and DRAM a band is fetched once for each wave of blocks when both inputs
do not fit in the L2, once in all when they do.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from gemm_lab.core.problem import GemmProblem
from gemm_lab.model.access import (
    LINE_BYTES,
    SECTOR_BYTES,
    WAVEFRONT_BYTES,
    GlobalRequest,
    global_request,
    run_sectors,
)
from gemm_lab.model.kernel_shape import KernelShape
from gemm_lab.model.roofline import compulsory_bytes
from gemm_lab.model.shared_traffic import shared_of_slice

__all__ = ["Grid", "Traffic", "grid_of", "traffic"]

_WARP = 32
# Part of the L2 that inputs may fill and still be found again: the rest holds C and whatever
# else passes through.
_L2_SHARE = 0.8


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Blocks along M and N, K slices of one block, and all blocks together."""

    blocks_m: int
    blocks_n: int
    k_tiles: int
    blocks: int


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """Totals of one launch. Requests are warp-wide instructions, sectors 32 bytes.

    Attributes:
        requested_bytes: what the threads ask of global memory, loads and stores.
        load_requests, load_sectors, store_requests, store_sectors: at the L1; 0 for TMA loads.
        l1_global_cycles: cycles of one L1 that global requests take, summed over the SMs.
        l2_read_bytes, l2_write_bytes: between the L1s and the L2.
        dram_bytes, compulsory_bytes: predicted, and the least possible.
        shared_load_requests, shared_load_wavefronts, shared_store_wavefronts: cycles of one SM's
            shared memory, summed over the SMs.
    """

    requested_bytes: float
    load_requests: float
    load_sectors: float
    store_requests: float
    store_sectors: float
    l1_global_cycles: float
    l2_read_bytes: float
    l2_write_bytes: float
    dram_bytes: float
    compulsory_bytes: int
    shared_load_requests: float
    shared_load_wavefronts: float
    shared_store_wavefronts: float

    @property
    def l2_bytes(self) -> float:
        """Reads and writes between L1 and L2."""
        return self.l2_read_bytes + self.l2_write_bytes

    @property
    def shared_bytes(self) -> float:
        """Wavefronts of shared memory as bytes of its bandwidth."""
        return (self.shared_load_wavefronts + self.shared_store_wavefronts) * WAVEFRONT_BYTES

    @property
    def sectors_per_load_request(self) -> float:
        """Mean sectors of a global load; 0 where there are none."""
        return self.load_sectors / self.load_requests if self.load_requests else 0.0

    @property
    def sectors_per_store_request(self) -> float:
        """Mean sectors of a global store; 0 where there are none."""
        return self.store_sectors / self.store_requests if self.store_requests else 0.0


def grid_of(shape: KernelShape, problem: GemmProblem) -> Grid:
    """How many blocks the launch has, split K and batch included."""
    s = problem.shape
    blocks_m, blocks_n = ceil(s.m / shape.block_m), ceil(s.n / shape.block_n)
    slices = ceil(s.k / shape.split_k)
    return Grid(
        blocks_m=blocks_m,
        blocks_n=blocks_n,
        k_tiles=ceil(slices / shape.block_k),
        blocks=blocks_m * blocks_n * shape.split_k * s.batch,
    )


def traffic(
    shape: KernelShape, problem: GemmProblem, *, l2_cache_bytes: int, resident_blocks: int
) -> Traffic:
    """Traffic of one launch.

    `l2_cache_bytes` is the card's L2, `resident_blocks` the blocks that all SMs hold at once.
    """
    grid = grid_of(shape, problem)
    loads = _Loads.of(shape, problem, grid)
    stores = _Stores.of(shape, problem)
    read_bytes = _l2_read_bytes(shape, problem, grid)
    # Pieces of K keep their sums; C is read and written by the launch that adds them up.
    c_reads = 0 if problem.beta == 0 or shape.split_k > 1 else 1
    shared = shared_of_slice(shape, problem)
    passes = grid.blocks * grid.k_tiles
    writes = stores.sectors * SECTOR_BYTES * shape.split_k
    l2_read = read_bytes + c_reads * stores.sectors * SECTOR_BYTES
    return Traffic(
        requested_bytes=loads.asked_bytes + stores.asked_bytes * (shape.split_k + c_reads),
        load_requests=loads.requests + c_reads * stores.requests,
        load_sectors=loads.sectors + c_reads * stores.sectors,
        store_requests=stores.requests * shape.split_k,
        store_sectors=stores.sectors * shape.split_k,
        l1_global_cycles=loads.l1_cycles + stores.l1_cycles * (shape.split_k + c_reads),
        l2_read_bytes=l2_read,
        l2_write_bytes=writes,
        dram_bytes=_dram_bytes(
            shape, problem, grid, l2_cache_bytes, resident_blocks, l2_read + writes
        ),
        compulsory_bytes=compulsory_bytes(problem),
        shared_load_requests=shared.load_requests * passes,
        shared_load_wavefronts=shared.load_wavefronts * passes,
        shared_store_wavefronts=shared.store_wavefronts * passes,
    )


# ---- global loads ----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Loads:
    requests: float
    sectors: float
    l1_cycles: float
    asked_bytes: float

    @classmethod
    def of(cls, shape: KernelShape, problem: GemmProblem, grid: Grid) -> _Loads:
        size = problem.dtype.storage.size_bytes
        s = problem.shape
        if shape.staging == "none":
            a, b = _operand_requests(shape, problem)
            # One step of K of one warp: thread_m loads of A, thread_n of B.
            steps = s.batch * ceil(s.m / shape.thread_m) * ceil(s.n / shape.thread_n) * s.k / _WARP
            return cls(
                requests=steps * (shape.thread_m + shape.thread_n),
                sectors=steps * (shape.thread_m * a.sectors + shape.thread_n * b.sectors),
                l1_cycles=steps * (shape.thread_m * a.l1_cycles + shape.thread_n * b.l1_cycles),
                asked_bytes=steps * _WARP * size * (shape.thread_m + shape.thread_n),
            )
        asked = float(s.batch * size * s.k * (grid.blocks_n * s.m + grid.blocks_m * s.n))
        if shape.staging == "tma":
            return cls(requests=0.0, sectors=0.0, l1_cycles=0.0, asked_bytes=asked)
        each = _WARP * shape.global_vector_bytes
        a_runs = shape.block_k if problem.layout[0] == "n" else shape.block_m
        b_runs = shape.block_n if problem.layout[1] == "n" else shape.block_k
        requests = cycles = 0.0
        for band, run in ((grid.blocks_n * s.m, a_runs), (grid.blocks_m * s.n, b_runs)):
            count = s.batch * size * s.k * band / each
            lines = max(each / LINE_BYTES, each / min(run * size, each))
            requests += count
            cycles += count * max(2.0, lines)
        return cls(
            requests=requests, sectors=asked / SECTOR_BYTES, l1_cycles=cycles, asked_bytes=asked
        )


def _operand_requests(
    shape: KernelShape, problem: GemmProblem
) -> tuple[GlobalRequest, GlobalRequest]:
    """One warp's load of A and of B at one step of K, straight from global memory."""
    rows, columns = shape.lane_rows_and_columns()
    size = problem.dtype.storage.size_bytes
    # Rows that are not neighbours in memory lie at least a line apart.
    far = 4096 * LINE_BYTES
    a_stride = far if problem.layout[0] == "n" else size * shape.thread_m
    b_stride = size * shape.thread_n if problem.layout[1] == "n" else far
    return (
        global_request([row * a_stride for row in rows], size),
        global_request([column * b_stride for column in columns], size),
    )


def _l2_read_bytes(shape: KernelShape, problem: GemmProblem, grid: Grid) -> float:
    s = problem.shape
    size = problem.dtype.storage.size_bytes
    # What passes the L1 on the way to registers is read along K by sectors that are found again;
    # asynchronous copies fetch each K slice anew.
    cached = shape.staging in ("none", "registers")
    depth = s.k if cached else min(shape.block_k, s.k)
    slices = ceil(s.k / depth) if depth else 0
    if problem.layout[0] == "n":
        a = s.m * slices * run_sectors(depth * size, s.k * size)
    else:
        a = s.k * _bands(s.m, shape.block_m, size)
    if problem.layout[1] == "n":
        b = s.k * _bands(s.n, shape.block_n, size)
    else:
        b = s.n * slices * run_sectors(depth * size, s.k * size)
    a_fetches = grid.blocks_n / min(shape.cluster_n, max(grid.blocks_n, 1))
    b_fetches = grid.blocks_m / min(shape.cluster_m, max(grid.blocks_m, 1))
    return s.batch * SECTOR_BYTES * (a * a_fetches + b * b_fetches)


def _bands(extent: int, block: int, size: int) -> float:
    """Sectors of one row of `extent` elements that is read in pieces of `block`."""
    whole, rest = divmod(extent, block)
    stride = extent * size
    return whole * run_sectors(block * size, stride) + run_sectors(rest * size, stride)


# ---- stores ----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Stores:
    requests: float
    sectors: float
    l1_cycles: float
    asked_bytes: float

    @classmethod
    def of(cls, shape: KernelShape, problem: GemmProblem) -> _Stores:
        s = problem.shape
        split = shape.split_k > 1
        size = (problem.dtype.accumulator if split else problem.out).size_bytes
        asked = float(s.batch * s.m * s.n * size)
        if shape.unit == "tensor" or shape.staging == "tma":
            # Whole sectors, a line and more at a time.
            requests = asked / (_WARP * shape.store_vector_bytes)
            return cls(
                requests=requests,
                sectors=asked / SECTOR_BYTES,
                l1_cycles=requests * max(2.0, _WARP * shape.store_vector_bytes / LINE_BYTES),
                asked_bytes=asked,
            )
        rows, columns = shape.lane_rows_and_columns()
        vector = max(1, min(shape.store_vector_bytes // size, shape.thread_n))
        interleaved = shape.shared_b.interleaved
        step = (vector if interleaved else shape.thread_n) * size
        far = 4096 * LINE_BYTES
        one = global_request(
            [row * far + column * step for row, column in zip(rows, columns, strict=True)],
            vector * size,
        )
        requests = asked / (_WARP * vector * size)
        return cls(
            requests=requests,
            sectors=requests * one.sectors,
            l1_cycles=requests * one.l1_cycles,
            asked_bytes=asked,
        )


# ---- DRAM ------------------------------------------------------------------------------------


def _dram_bytes(
    shape: KernelShape,
    problem: GemmProblem,
    grid: Grid,
    l2_cache_bytes: int,
    resident_blocks: int,
    l2_traffic_bytes: float,
) -> float:
    """Least traffic when the inputs fit in the L2, else the bands of each wave of blocks."""
    s = problem.shape
    size = problem.dtype.storage.size_bytes
    least = float(compulsory_bytes(problem))
    inputs = (s.m + s.n) * s.k * size
    if inputs <= _L2_SHARE * l2_cache_bytes or not grid.blocks:
        return least
    wave = max(1, resident_blocks)
    rows = min(grid.blocks_m, max(shape.group_m, ceil(wave / grid.blocks_n)))
    columns = min(grid.blocks_n, ceil(wave / rows))
    waves = s.batch * grid.blocks_m * grid.blocks_n / (rows * columns)
    bands = (rows * shape.block_m + columns * shape.block_n) * s.k * size
    outputs = least - s.batch * inputs
    return min(max(least, waves * bands + outputs), max(least, l2_traffic_bytes))
