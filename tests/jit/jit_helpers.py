"""Kernels and small helpers of these tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import gemm_lab
from gemm_lab.core.kernel import RenderedKernel
from gemm_lab.errors import CompileError
from gemm_lab.jit import Cache, compile_kernel
from gemm_lab.jit.toolchain import find_libraries

PROJECT = Path(gemm_lab.__file__).parent.parent

SOURCE = """\
extern "C" __global__ void twice(float* data, int count) {
    __shared__ float tile[64];
    int index = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x] = index < count ? data[index] : 0.0f;
    __syncthreads();
    if (index < count) data[index] = 2.0f * tile[63 - threadIdx.x];
}
"""

needs_nvrtc = pytest.mark.skipif(not find_libraries(), reason="NVRTC is not installed")


def small_kernel(
    source: str = SOURCE, *, arch: str = "sm_80", name: str = "twice", options: tuple[str, ...] = ()
) -> RenderedKernel:
    entries = tuple(
        re.findall(r'extern "C" __global__ void (?:__launch_bounds__\([^)]*\) )?(\w+)', source)
    )
    return RenderedKernel(name=name, source=source, entries=entries, arch=arch, options=options)


def compile_failure(rendered: RenderedKernel, cache: Cache) -> CompileError:
    with pytest.raises(CompileError) as caught:
        compile_kernel(rendered, cache=cache)
    return caught.value
