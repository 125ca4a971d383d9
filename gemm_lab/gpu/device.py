"""Which GPU there is, or why there is none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gemm_lab.errors import NoGpuError, UsageError
from gemm_lab.gpu._cuda import Cuda, cuda
from gemm_lab.gpu.faults import (
    INSUFFICIENT_DRIVER,
    NO_DEVICE,
    NO_FORK,
    NOT_INITIALIZED,
    status_of,
)

__all__ = ["DeviceLimits", "GpuInfo", "NoGpu", "cuda_version_text", "device_info", "find_gpu"]


@dataclass(frozen=True, kw_only=True)
class DeviceLimits:
    """What the driver says that this device can hold; sizes in bytes."""

    max_threads_per_block: int
    max_block_x: int
    max_block_y: int
    max_block_z: int
    max_grid_x: int
    max_grid_y: int
    max_grid_z: int
    smem_per_block_bytes: int
    smem_per_block_optin_bytes: int
    registers_per_block: int


@dataclass(frozen=True, kw_only=True)
class GpuInfo:
    """One device. `driver_cuda` is the newest CUDA that its driver knows, as 12090 for 12.9."""

    index: int
    name: str
    arch: str
    sm_count: int
    memory_bytes: int
    l2_bytes: int
    driver_cuda: int
    runtime_cuda: int
    limits: DeviceLimits


@dataclass(frozen=True, kw_only=True)
class NoGpu:
    """Why no GPU can be used, and what would change that."""

    reason: str
    mend: str

    def error(self) -> NoGpuError:
        """The same, to be raised."""
        return NoGpuError(self.reason, hint=self.mend)


def cuda_version_text(version: int) -> str:
    """ "12.9" for 12090."""
    return f"{version // 1000}.{version % 1000 // 10}"


def find_gpu(device: int | None = None) -> GpuInfo | NoGpu:
    """The device of that index (None: CuPy's current one), or the reason why there is none.

    UsageError when the index does not exist although other devices do.
    """
    try:
        found = cuda()
    except NoGpuError as missing:
        return NoGpu(reason=missing.message, mend=missing.hint or "")
    runtime = found.runtime
    try:
        count = runtime.getDeviceCount()
        index = runtime.getDevice() if device is None else device
    except RuntimeError as fault:
        return _why_none(found, fault)
    if count == 0:
        return NoGpu(reason="the driver reports no device", mend="check `nvidia-smi`")
    if not 0 <= index < count:
        raise UsageError(f"there is no device {index}", hint=f"devices: 0 to {count - 1}")
    try:
        return device_info(index)
    except RuntimeError as fault:
        return NoGpu(
            reason=f"device {index} cannot be used: {fault}",
            mend="check `nvidia-smi`; another process may hold it in exclusive mode",
        )


def device_info(index: int) -> GpuInfo:
    """Facts of one device; CUDA's own errors pass through."""
    found = cuda()
    runtime = found.runtime
    properties: dict[str, Any] = runtime.getDeviceProperties(index)
    name = properties["name"]

    def attribute(short_name: str) -> int:
        return int(runtime.deviceGetAttribute(getattr(runtime, f"cudaDevAttr{short_name}"), index))

    return GpuInfo(
        index=index,
        name=name.decode() if isinstance(name, bytes) else str(name),
        arch=f"sm_{found.cupy.cuda.Device(index).compute_capability}",
        sm_count=attribute("MultiProcessorCount"),
        memory_bytes=int(properties["totalGlobalMem"]),
        l2_bytes=attribute("L2CacheSize"),
        driver_cuda=runtime.driverGetVersion(),
        runtime_cuda=runtime.runtimeGetVersion(),
        limits=DeviceLimits(
            max_threads_per_block=attribute("MaxThreadsPerBlock"),
            max_block_x=attribute("MaxBlockDimX"),
            max_block_y=attribute("MaxBlockDimY"),
            max_block_z=attribute("MaxBlockDimZ"),
            max_grid_x=attribute("MaxGridDimX"),
            max_grid_y=attribute("MaxGridDimY"),
            max_grid_z=attribute("MaxGridDimZ"),
            smem_per_block_bytes=attribute("MaxSharedMemoryPerBlock"),
            smem_per_block_optin_bytes=attribute("MaxSharedMemoryPerBlockOptin"),
            registers_per_block=attribute("MaxRegistersPerBlock"),
        ),
    )


def _why_none(found: Cuda, fault: BaseException) -> NoGpu:
    status = status_of(fault)
    try:
        driver = int(found.runtime.driverGetVersion())
        runtime = int(found.runtime.runtimeGetVersion())
    except RuntimeError:  # CUDA's errors, and CuPy's when libcuda is not there
        driver, runtime = 0, 0
    if status == NO_DEVICE:
        return NoGpu(
            reason="the NVIDIA driver finds no device",
            mend="check `nvidia-smi` and CUDA_VISIBLE_DEVICES",
        )
    if status == NOT_INITIALIZED:
        return NoGpu(reason="CUDA does not start in this process", mend=NO_FORK)
    # CUDA calls a driver that is not there "insufficient" too.
    if driver == 0:
        return NoGpu(
            reason="no NVIDIA driver is loaded",
            mend="install the NVIDIA driver, or run where there is one",
        )
    if status == INSUFFICIENT_DRIVER:
        return NoGpu(
            reason=f"the NVIDIA driver knows CUDA {cuda_version_text(driver)}, and CuPy needs "
            f"{cuda_version_text(runtime)}",
            mend="update the driver, or install the CuPy that fits it",
        )
    return NoGpu(reason=f"CUDA does not start: {fault}", mend="check `nvidia-smi`")
