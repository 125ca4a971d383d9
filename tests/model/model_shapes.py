"""Kernels of the CUDA-core ladder as the model sees them, and the products they are asked for."""

from __future__ import annotations

from gemm_lab.core.dtypes import dtype
from gemm_lab.core.problem import GemmProblem, Layout, Shape
from gemm_lab.model import KernelShape, SharedOperand


def product(
    m: int, n: int | None = None, k: int | None = None, *, name: str = "fp32",
    layout: Layout = "nn", beta: float = 0.0, batch: int = 1,
) -> GemmProblem:  # fmt: skip
    """m x n x k, square where only m is given."""
    arithmetic = dtype(name)
    shape = Shape(m=m, n=m if n is None else n, k=m if k is None else k, batch=batch)
    return GemmProblem(
        shape=shape, dtype=arithmetic, out=arithmetic.default_out, layout=layout, beta=beta
    )


COLUMN_LANES = KernelShape(
    unit="cuda_core", block_m=32, block_n=32, block_k=4, threads=1024,
    lanes_m=32, lanes_n=1, lanes_first="m", registers_per_thread=32,
)  # fmt: skip
ROW_LANES = KernelShape(
    unit="cuda_core", block_m=32, block_n=32, block_k=4, threads=1024, registers_per_thread=32
)
SHARED_32 = KernelShape(
    unit="cuda_core", block_m=32, block_n=32, block_k=32, threads=1024, staging="registers",
    registers_per_thread=32, static_smem_bytes=8192,
    shared_a=SharedOperand(k_contiguous=True, vector_elements=4),
)  # fmt: skip
REGISTER_TILE_8 = KernelShape(
    unit="cuda_core", block_m=128, block_n=128, block_k=16, threads=256, thread_m=8, thread_n=8,
    lanes_m=2, lanes_n=16, staging="registers", registers_per_thread=128,
    static_smem_bytes=16384, shared_a=SharedOperand(k_contiguous=True),
)  # fmt: skip
WARP_TILE = KernelShape(
    unit="cuda_core", block_m=128, block_n=128, block_k=8, threads=256, thread_m=8, thread_n=8,
    lanes_m=8, lanes_n=4, staging="registers", stages=2, registers_per_thread=128,
    static_smem_bytes=16384, global_vector_bytes=16, store_vector_bytes=16,
    shared_a=SharedOperand(vector_elements=4, interleaved=True),
    shared_b=SharedOperand(vector_elements=4, interleaved=True),
)  # fmt: skip
WARPGROUPS = KernelShape(
    unit="tensor", block_m=128, block_n=256, block_k=64, threads=384, warp_m=64, warp_n=256,
    staging="tma", stages=4, cluster_m=2, registers_per_thread=168, dynamic_smem_bytes=200_000,
)  # fmt: skip
LADDER = (COLUMN_LANES, ROW_LANES, SHARED_32, REGISTER_TILE_8, WARP_TILE)
