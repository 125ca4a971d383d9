"""Kernels on a real GPU, through CuPy."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import TYPE_CHECKING, Any, Literal

from gemm_lab.core.backend import Argument, Pointer, TensorMapArgument
from gemm_lab.core.dtypes import ScalarType
from gemm_lab.core.kernel import CompiledKernel, KernelLaunch
from gemm_lab.errors import LaunchError, UsageError
from gemm_lab.gpu._cuda import cuda
from gemm_lab.gpu.clusters import resident_clusters
from gemm_lab.gpu.device import GpuInfo, NoGpu, find_gpu
from gemm_lab.gpu.faults import translate, translated
from gemm_lab.gpu.float64 import float64_rows
from gemm_lab.gpu.launch import LaunchCalls, PreparedLaunch, prepare_launch
from gemm_lab.gpu.limits import check_launch, describe
from gemm_lab.gpu.loaded import DeviceBuffer, LoadedKernel, allow_smem, load_cubin
from gemm_lab.gpu.tensor_map import encode_tensor_map

if TYPE_CHECKING:
    import numpy as np

__all__ = ["DeviceBuffer", "GpuBackend", "LoadedKernel"]


class GpuBackend:
    """The Backend of one device (None: CuPy's current one); NoGpuError when there is none.

    Every method makes its device current for itself only. Work goes to the caller's current
    CuPy stream on that device unless a stream handle is given.
    """

    name: Literal["gpu"] = "gpu"

    def __init__(self, device: int | None = None) -> None:
        found = find_gpu(device)
        if isinstance(found, NoGpu):
            raise found.error()
        self.info: GpuInfo = found

    @property
    def device(self) -> int:
        """Index of the device."""
        return self.info.index

    @property
    def device_name(self) -> str:
        return self.info.name

    @property
    def arch(self) -> str:
        return self.info.arch

    @property
    def sm_count(self) -> int:
        return self.info.sm_count

    # ---- kernels ----

    def load(self, compiled: CompiledKernel, *, transient: bool = False) -> LoadedKernel:
        """Load every entry of a cubin.

        RawModule remembers each path until the process ends, so that a second load is free and
        `unload` gives nothing back. With `transient` the cubin is loaded past that memory and
        leaves the context at `unload`: for sweeps over thousands of kernels.
        """
        with self._on_device(f"loading {compiled.cubin_path}"):
            return load_cubin(compiled, self.device, transient=transient)

    def unload(self, loaded: LoadedKernel) -> None:
        """Forget a kernel; frees its code when it was loaded as transient."""
        with self._on_device("unloading a kernel"):
            loaded.release()

    def prepare(
        self, loaded: LoadedKernel, launch: KernelLaunch, arguments: Sequence[Argument]
    ) -> PreparedLaunch:
        """Check a launch against the limits, pack its arguments, opt in to its shared memory.

        The result repeats it with new addresses at the least host cost.
        """
        if len(arguments) != len(launch.params):
            raise LaunchError(
                f"{launch.entry} takes {len(launch.params)} arguments, got {len(arguments)}",
                hint=f"its parameters: {', '.join(launch.params)}",
            )
        function = loaded.function(launch.entry)
        facts = loaded.facts[launch.entry]
        check_launch(launch, facts, self.info.limits)
        if launch.smem_bytes:
            with self._on_device(describe(launch, facts)):
                allow_smem(self.device, function, launch.smem_bytes)
        return prepare_launch(
            function=function,
            launch=launch,
            arguments=arguments,
            device=self.device,
            calls=_launch_calls(),
            description=describe(launch, facts),
            owner=loaded.module,
        )

    def launch(
        self,
        loaded: LoadedKernel,
        launch: KernelLaunch,
        arguments: Sequence[Argument],
        *,
        stream: int | None = None,
    ) -> None:
        """One launch, checked and packed anew; `prepare` is for the ones that come again."""
        addresses = [a.address for a in arguments if isinstance(a, (Pointer, TensorMapArgument))]
        self.prepare(loaded, launch, arguments).launch(addresses, stream)

    def occupancy_blocks(self, loaded: LoadedKernel, launch: KernelLaunch) -> int:
        """Blocks of this launch that one multiprocessor holds at once, by the driver's answer."""
        function = loaded.function(launch.entry)
        x, y, z = launch.block
        with self._on_device(describe(launch)):
            allow_smem(self.device, function, launch.smem_bytes)
            return int(
                cuda().driver.occupancyMaxActiveBlocksPerMultiprocessor(
                    function, x * y * z, launch.smem_bytes
                )
            )

    def resident_clusters(self, loaded: LoadedKernel, launch: KernelLaunch) -> int:
        """Clusters of this launch that the device holds at once; its grid does not matter."""
        function = loaded.function(launch.entry)
        with self._on_device(describe(launch)):
            allow_smem(self.device, function, launch.smem_bytes)
            found = resident_clusters(function, launch)
        if found is None:
            blocks = self.occupancy_blocks(loaded, launch) * self.sm_count
            found = blocks // prod(launch.cluster)
        return found

    # ---- memory ----

    def alloc(self, size_bytes: int) -> DeviceBuffer:
        """Uninitialised device memory; ResourceError when there is not enough."""
        if size_bytes < 0:
            raise UsageError(f"cannot allocate {size_bytes} bytes")
        with self._on_device(f"allocating {size_bytes} bytes"):
            return DeviceBuffer(cuda().cupy.cuda.alloc(size_bytes), size_bytes, self.device)

    def free(self, buffer: DeviceBuffer) -> None:
        """Give memory back to CuPy's pool; freeing twice is harmless."""
        buffer.memory = None

    def upload(self, array: np.ndarray[Any, Any]) -> DeviceBuffer:
        """A copy of a host array in device memory, row-major; complete on return."""
        import numpy

        packed = numpy.ascontiguousarray(array)
        buffer = self.alloc(packed.nbytes)
        if packed.nbytes:
            with self._on_device(f"copying {packed.nbytes} bytes to the device"):
                stream = cuda().cupy.cuda.get_current_stream()
                buffer.memory.copy_from_host_async(packed.ctypes.data, packed.nbytes, stream)
                stream.synchronize()
        return buffer

    def download(
        self, buffer: DeviceBuffer, dtype: np.dtype[Any], shape: tuple[int, ...]
    ) -> np.ndarray[Any, Any]:
        """The first elements of a buffer, after all work on the current stream.

        Call `synchronize` before it when the work went to another stream.
        """
        import numpy

        array = numpy.empty(shape, dtype)
        if array.nbytes > buffer.size_bytes:
            raise UsageError(
                f"the buffer holds {buffer.size_bytes} bytes, {array.nbytes} were asked for"
            )
        if array.nbytes:
            address = array.ctypes.data
            with self._on_device(f"copying {array.nbytes} bytes from the device"):
                stream = cuda().cupy.cuda.get_current_stream()
                buffer.memory.copy_to_host_async(address, array.nbytes, stream)
                stream.synchronize()
        return array

    def write(self, buffer: DeviceBuffer, array: np.ndarray[Any, Any]) -> None:
        """Copy a packed host array over the start of a buffer; complete on return."""
        if array.nbytes > buffer.size_bytes:
            raise UsageError(f"the buffer holds {buffer.size_bytes} bytes, not {array.nbytes}")
        with self._on_device(f"copying {array.nbytes} bytes to the device"):
            stream = cuda().cupy.cuda.get_current_stream()
            buffer.memory.copy_from_host_async(array.ctypes.data, array.nbytes, stream)
            stream.synchronize()

    def float64_rows(
        self,
        buffer: DeviceBuffer,
        scalar: ScalarType,
        shape: tuple[int, int, int],
        strides: tuple[int, int, int],
        block: slice,
    ) -> Any:
        """Rows of a matrix in a buffer as a CuPy float64 array; see gpu.float64."""
        with self._on_device("widening to float64"):
            return float64_rows(buffer, scalar, shape, strides, block)

    def address(self, buffer: DeviceBuffer) -> int:
        """Byte address of a buffer."""
        return buffer.address

    def fill(self, buffer: DeviceBuffer, byte: int) -> None:
        """Set every byte, on the current stream (0xFF makes a NaN of every float type here)."""
        if buffer.size_bytes:
            with self._on_device(f"filling {buffer.size_bytes} bytes"):
                buffer.memory.memset_async(byte, buffer.size_bytes)

    def synchronize(self) -> None:
        """Wait for all work of the device; what broke off there is reported here."""
        with self._on_device("waiting for the device"):
            cuda().runtime.deviceSynchronize()

    def free_bytes(self) -> int:
        """Device memory that nobody holds, CuPy's pool counted as free."""
        with self._on_device("asking for free memory"):
            cupy = cuda().cupy
            return int(cuda().runtime.memGetInfo()[0] + cupy.get_default_memory_pool().free_bytes())

    def current_stream(self) -> int:
        """Handle of the calling thread's current stream on this device."""
        return int(cuda().cupy.cuda.get_current_stream(self.device).ptr)

    @contextmanager
    def on_device(self, doing: str) -> Iterator[None]:
        """Make the device current and translate CUDA's errors for a while."""
        with self._on_device(doing):
            yield

    @contextmanager
    def _on_device(self, doing: str) -> Iterator[None]:
        with translated(doing), cuda().cupy.cuda.Device(self.device):
            yield


@functools.cache
def _launch_calls() -> LaunchCalls:
    found = cuda()

    def bind_context(device: int) -> None:
        found.runtime.setDevice(device)
        found.runtime.free(0)

    return LaunchCalls(
        launch_kernel=found.driver.launchKernel,
        current_stream=found.cupy.cuda.get_current_stream,
        current_device=found.runtime.getDevice,
        use_device=found.cupy.cuda.Device,
        bind_context=bind_context,
        encode_tensor_map=encode_tensor_map,
        errors=found.errors,
        translate=translate,
    )
