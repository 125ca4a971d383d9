"""The Backend of the emulator: NumPy stands in for a card of one architecture."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import numpy as np

from gemm_lab.core.arch import ArchLimits, arch_limits
from gemm_lab.core.backend import Argument, Pointer, Scalar, TensorMapArgument
from gemm_lab.core.kernel import CompiledKernel, KernelLaunch
from gemm_lab.emulator.launch import LaunchReport, launch
from gemm_lab.emulator.module import LoadedModule, load_ptx
from gemm_lab.emulator.options import Options
from gemm_lab.emulator.runtime.memory import Buffer, Memory
from gemm_lab.emulator.tensor.maps import encode_tensor_map
from gemm_lab.errors import LaunchError

__all__ = ["EmulatorBackend"]

SCALARS = {"int": np.int32, "long long": np.int64, "float": np.float32, "double": np.float64}
KEPT_MODULES = 64
DEFAULT_SM_COUNT = 16


@dataclass(slots=True)
class Loaded:
    """A kernel as the emulator holds it."""

    module: LoadedModule
    name: str


class PreparedLaunch:
    """One launch with its arguments in order; repeated with other addresses."""

    def __init__(
        self,
        backend: EmulatorBackend,
        loaded: Loaded,
        launch_: KernelLaunch,
        arguments: Sequence[Argument],
    ) -> None:
        self.backend = backend
        self.loaded = loaded
        self.plan = launch_
        self.arguments = tuple(arguments)

    def launch(self, addresses: Sequence[int], stream: int | None = None) -> None:
        """Run with an address for each Pointer and tensor map, in their order."""
        rest = iter(addresses)
        args: list[Any] = []
        for argument in self.arguments:
            if isinstance(argument, Scalar):
                with np.errstate(over="ignore"):  # past the type's range is infinite, as in C
                    args.append(np.array(argument.value).astype(SCALARS[argument.c_type])[()])
            elif isinstance(argument, Pointer):
                args.append(int(next(rest)))
            else:
                args.append(self.backend.tensor_map(argument, int(next(rest))))
        self.backend.run(self.loaded, self.plan, args)


class EmulatorBackend:
    """Runs the PTX of compiled kernels on NumPy.

    Args:
        arch: whose limits hold, "sm_80".
        options: how launches are watched.
        sm_count: multiprocessors that a kernel is told of.

    Reports of launches gather in `reports` while it is a list; None, as at first, keeps none.
    """

    name: Literal["emulator"] = "emulator"

    def __init__(
        self,
        *,
        arch: str,
        options: Options | None = None,
        sm_count: int = DEFAULT_SM_COUNT,
        memory: Memory | None = None,
    ) -> None:
        self.arch = arch
        self.sm_count = sm_count
        self.limits: ArchLimits = arch_limits(arch)
        self.options = options or Options()
        self.memory = memory or Memory()
        self.reports: list[LaunchReport] | None = None
        self._modules: OrderedDict[str, LoadedModule] = OrderedDict()

    @property
    def device_name(self) -> str:
        return f"emulated {self.arch}"

    # ---- kernels ----
    def load(self, compiled: CompiledKernel) -> Loaded:
        """Parse and check the PTX; the last ones are remembered by their hash."""
        key = compiled.ptx_hash
        module = self._modules.get(key)
        if module is None:
            module = load_ptx(compiled.ptx, source=compiled.rendered.source, arch=self.arch)
            self._modules[key] = module
            if len(self._modules) > KEPT_MODULES:
                self._modules.popitem(last=False)
        self._modules.move_to_end(key)
        return Loaded(module, compiled.rendered.name)

    def unload(self, loaded: Loaded) -> None:
        """Nothing to free: modules leave when others come."""

    def prepare(
        self, loaded: Loaded, launch: KernelLaunch, arguments: Sequence[Argument]
    ) -> PreparedLaunch:
        """A launch to repeat with other addresses."""
        if len(arguments) != len(launch.params):
            raise LaunchError(
                f"{launch.entry} takes {len(launch.params)} arguments, got {len(arguments)}",
                hint=f"its parameters: {', '.join(launch.params)}",
            )
        return PreparedLaunch(self, loaded, launch, arguments)

    def launch(
        self,
        loaded: Loaded,
        launch: KernelLaunch,
        arguments: Sequence[Argument],
        *,
        stream: int | None = None,
    ) -> None:
        """One launch; faults are EmulatorFault."""
        addresses = [a.address for a in arguments if isinstance(a, Pointer | TensorMapArgument)]
        self.prepare(loaded, launch, arguments).launch(addresses)

    def resident_clusters(self, loaded: Loaded, launch: KernelLaunch) -> int:
        """Clusters of this launch at once: here a cluster's blocks may lie anywhere."""
        return max(self.sm_count // prod(launch.cluster), 1)

    def run(self, loaded: Loaded, plan: KernelLaunch, args: Sequence[Any]) -> LaunchReport:
        """One launch with packed arguments."""
        report = launch(
            loaded.module,
            plan.entry,
            grid=plan.grid,
            block=plan.block,
            cluster=plan.cluster,
            smem_bytes=plan.smem_bytes,
            args=args,
            memory=self.memory,
            limits=self.limits,
            options=self.options,
            sm_count=self.sm_count,
        )
        if self.reports is not None:
            self.reports.append(report)
        return report

    def tensor_map(self, argument: TensorMapArgument, address: int) -> Any:
        """A tensor map argument for the launch."""
        spec = argument.spec
        return encode_tensor_map(
            address=address,
            element=spec.dtype.name,
            element_bytes=spec.dtype.size_bytes,
            dims=spec.dims,
            strides_bytes=spec.strides_bytes,
            box=spec.box,
            swizzle=spec.swizzle,
            round_tf32=spec.round_tf32,
        )

    # ---- memory ----
    def alloc(self, size_bytes: int) -> Buffer:
        """Memory of the emulated card."""
        return self.memory.alloc(size_bytes)

    def free(self, buffer: Buffer) -> None:
        """Give memory back; freeing twice is harmless."""
        if not buffer.free:
            self.memory.free(buffer)

    def upload(self, array: np.ndarray[Any, Any]) -> Buffer:
        """A copy of a host array, row-major."""
        return self.memory.upload(array)

    def write(self, buffer: Buffer, array: np.ndarray[Any, Any]) -> None:
        """Copy a host array over the start of a buffer."""
        self.memory.write(buffer, array)

    def download(
        self, buffer: Buffer, dtype: np.dtype[Any], shape: tuple[int, ...]
    ) -> np.ndarray[Any, Any]:
        """The first elements of a buffer."""
        return self.memory.download(buffer, dtype, shape)

    def address(self, buffer: Buffer) -> int:
        """Byte address of a buffer."""
        return buffer.address

    def fill(self, buffer: Buffer, byte: int) -> None:
        """Set every byte."""
        self.memory.raw(buffer)[:] = byte & 0xFF

    def synchronize(self) -> None:
        """Launches are over when they return."""
