"""The GPU: devices, kernels, memory, arrays, cuBLAS and timing. CuPy is loaded when first used."""

from gemm_lab.gpu.backend import DeviceBuffer, GpuBackend, LoadedKernel
from gemm_lab.gpu.device import DeviceLimits, GpuInfo, NoGpu, find_gpu
from gemm_lab.gpu.launch import PreparedLaunch

__all__ = [
    "DeviceBuffer",
    "DeviceLimits",
    "GpuBackend",
    "GpuInfo",
    "LoadedKernel",
    "NoGpu",
    "PreparedLaunch",
    "find_gpu",
]
