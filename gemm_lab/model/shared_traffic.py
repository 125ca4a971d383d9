"""Cycles of shared memory that one block spends on one K slice."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from gemm_lab.core.problem import GemmProblem
from gemm_lab.model.access import WAVEFRONT_BYTES, bank_wavefronts
from gemm_lab.model.kernel_shape import KernelShape, SharedOperand

__all__ = ["SharedReads", "SharedSlice", "shared_of_slice", "shared_reads"]

_WARP = 32


@dataclass(frozen=True, kw_only=True)
class SharedReads:
    """Shared loads of one warp for one step of K (a mean when a load spans several steps)."""

    requests: float
    wavefronts: float


@dataclass(frozen=True, kw_only=True)
class SharedSlice:
    """One block, one K slice: warp-wide loads, and the cycles of loads and of stores."""

    load_requests: float
    load_wavefronts: float
    store_wavefronts: float


def shared_of_slice(shape: KernelShape, problem: GemmProblem) -> SharedSlice:
    """What a block reads and writes in shared memory for one K slice.

    CUDA cores read what their threads multiply, through the banks; tensor cores fetch the
    operands of each warp tile once, without conflicts.
    """
    if shape.staging == "none":
        return SharedSlice(load_requests=0.0, load_wavefronts=0.0, store_wavefronts=0.0)
    size = problem.dtype.storage.size_bytes
    slice_bytes = (shape.block_m + shape.block_n) * shape.block_k * size
    stores = slice_bytes / WAVEFRONT_BYTES * shape.shared_store_ways
    if shape.unit == "tensor":
        tiles = ceil(shape.block_m / shape.warp_m) * ceil(shape.block_n / shape.warp_n)
        fetched = tiles * (shape.warp_m + shape.warp_n) * shape.block_k * size
        wavefronts = fetched / WAVEFRONT_BYTES
        # ldmatrix.x4 takes four wavefronts.
        return SharedSlice(
            load_requests=wavefronts / 4, load_wavefronts=wavefronts, store_wavefronts=stores
        )
    rows, columns = shape.lane_rows_and_columns()
    a = shared_reads(
        shape.shared_a,
        lane_index=rows,
        lanes=shape.lanes_m,
        elements=shape.thread_m,
        tile=shape.block_m,
        depth=shape.block_k,
        size_bytes=size,
    )
    b = shared_reads(
        shape.shared_b,
        lane_index=columns,
        lanes=shape.lanes_n,
        elements=shape.thread_n,
        tile=shape.block_n,
        depth=shape.block_k,
        size_bytes=size,
    )
    warps = shape.block_m * shape.block_n / (shape.thread_m * shape.thread_n * _WARP)
    steps = warps * shape.block_k
    return SharedSlice(
        load_requests=steps * (a.requests + b.requests),
        load_wavefronts=steps * (a.wavefronts + b.wavefronts),
        store_wavefronts=stores,
    )


def shared_reads(
    operand: SharedOperand,
    *,
    lane_index: list[int],
    lanes: int,
    elements: int,
    tile: int,
    depth: int,
    size_bytes: int,
) -> SharedReads:
    """Requests and cycles with which a warp reads its part of a tile, a step of K.

    `lane_index` places each lane along the tile, `elements` are those of one thread, `tile` the
    tile's extent and `depth` its K slice. Cycles are counted from the lanes' addresses.
    """
    pitch = operand.pitch_elements or (depth if operand.k_contiguous else tile)
    if operand.k_contiguous:
        # One load spans `vector` steps of K of one element.
        vector, along, stride = min(operand.vector_elements, depth), 1, pitch
        steps = vector
    else:
        vector = along = min(operand.vector_elements, elements)
        stride, steps = 1, 1
    width = vector * size_bytes
    requests = wavefronts = 0
    for first in range(0, elements, along):
        places = [
            (first // along * lanes + lane) * along
            if operand.interleaved
            else lane * elements + first
            for lane in lane_index
        ]
        addresses = [place * stride * size_bytes for place in places]
        if operand.swizzled:
            order = {a: i for i, a in enumerate(sorted(set(addresses)))}
            addresses = [order[a] * width for a in addresses]
        requests += 1
        wavefronts += bank_wavefronts(addresses, width)
    return SharedReads(requests=requests / steps, wavefronts=wavefronts / steps)
