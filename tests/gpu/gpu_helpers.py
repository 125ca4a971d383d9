"""Kernels and arithmetic of the tests that need a card."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from gemm_lab.core.kernel import CompiledKernel, RenderedKernel
from gemm_lab.gpu import GpuBackend
from gemm_lab.jit import Cache, compile_kernel

# Writes every argument out, and uses dynamic shared memory to its last byte.
SOURCE = """
extern "C" __global__ void arguments(int m, float alpha, const float* a, long long lda,
                                     double beta, double* out) {
    out[0] = m; out[1] = alpha; out[2] = a[0]; out[3] = (double)lda; out[4] = beta;
}
extern "C" __global__ void fill_smem(int bytes, int* out) {
    extern __shared__ unsigned char dynamic[];
    for (int i = threadIdx.x; i < bytes; i += blockDim.x) dynamic[i] = (unsigned char)(i * 7);
    __syncthreads();
    int wrong = 0;
    for (int i = threadIdx.x; i < bytes; i += blockDim.x)
        wrong += dynamic[i] != (unsigned char)(i * 7);
    if (wrong) atomicAdd(out, wrong);
}
extern "C" __global__ void add_one(float* x, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) x[i] += 1.0f;
}
extern "C" __global__ void spin(long long cycles, float* x) {
    long long start = clock64();
    while (clock64() - start < cycles) {}
    if (threadIdx.x == 0) x[0] += 1.0f;
}
extern "C" __global__ void illegal(float* x) { x[threadIdx.x + (1ll << 40)] = 1.0f; }
"""
ENTRIES = ("arguments", "fill_smem", "add_one", "spin", "illegal")

# One TMA copy of a box to shared memory, and out again: needs sm_90.
TMA_SOURCE = """
struct alignas(64) TensorMap { unsigned char bytes[128]; };
extern "C" __global__ void copy_box(const __grid_constant__ TensorMap map, int x, int y,
                                    float* out) {
    extern __shared__ __align__(128) float tile[];
    __shared__ __align__(8) unsigned long long full;
    unsigned bar = (unsigned)__cvta_generic_to_shared(&full);
    unsigned dst = (unsigned)__cvta_generic_to_shared(tile);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(bar));
        asm volatile("fence.mbarrier_init.release.cluster;");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                     :: "r"(bar), "r"(32 * 8 * 4));
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                     " [%0], [%1, {%2, %3}], [%4];"
                     :: "r"(dst), "l"(&map), "r"(x), "r"(y), "r"(bar) : "memory");
    }
    __syncthreads();
    unsigned done = 0;
    while (!done)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;"
                     " selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(bar) : "memory");
    for (int i = threadIdx.x; i < 32 * 8; i += blockDim.x) out[i] = tile[i];
}
"""


def compiled(backend: GpuBackend, cache: Cache) -> CompiledKernel:
    """The kernels above, for the card at hand."""
    rendered = RenderedKernel(name="probe", source=SOURCE, entries=ENTRIES, arch=backend.arch)
    return compile_kernel(rendered, cache=cache)


def encode(values: np.ndarray[Any, Any], scalar: str) -> np.ndarray[Any, Any]:
    """float64 numbers as the host carries an element type; fp8 as uint8."""
    if scalar == "bf16":
        return values.astype(ml_dtypes.bfloat16)
    if scalar == "fp8_e4m3":
        return values.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    names = {"fp32": "float32", "fp16": "float16", "int8": "int8", "int32": "int32"}
    return values.astype(names[scalar])


def decode(array: np.ndarray[Any, Any], scalar: str) -> np.ndarray[Any, Any]:
    """Back to float64."""
    if scalar == "fp8_e4m3":
        array = array.view(ml_dtypes.float8_e4m3fn)
    return array.astype(np.float64)
