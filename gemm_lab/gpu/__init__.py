"""The GPU: devices, kernels, memory, arrays, cuBLAS and timing. CuPy is loaded when first used.

`gemm_lab.gpu.checks.checks()` is what doctor asks.
"""

from gemm_lab.gpu.array_view import ArrayView, may_overlap
from gemm_lab.gpu.backend import GpuBackend
from gemm_lab.gpu.baseline import Baseline, Baselines, GemmBuffers, baselines, best_baseline
from gemm_lab.gpu.clocks import ClockMeter, Clocks
from gemm_lab.gpu.device import DeviceLimits, GpuInfo, NoGpu, find_gpu
from gemm_lab.gpu.launch import PreparedLaunch
from gemm_lab.gpu.loaded import DeviceBuffer, LoadedKernel
from gemm_lab.gpu.stopwatch import CudaStopwatch
from gemm_lab.gpu.timing import (
    Rotation,
    Samples,
    Timed,
    TimingSettings,
    measure_interleaved,
    rotation,
)

__all__ = [
    "ArrayView",
    "Baseline",
    "Baselines",
    "ClockMeter",
    "Clocks",
    "CudaStopwatch",
    "DeviceBuffer",
    "DeviceLimits",
    "GemmBuffers",
    "GpuBackend",
    "GpuInfo",
    "LoadedKernel",
    "NoGpu",
    "PreparedLaunch",
    "Rotation",
    "Samples",
    "Timed",
    "TimingSettings",
    "baselines",
    "best_baseline",
    "find_gpu",
    "may_overlap",
    "measure_interleaved",
    "rotation",
]
