"""What a backend does: hold memory, load a compiled kernel, launch it with arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from gemm_lab.core.kernel import CompiledKernel, KernelLaunch, TensorMapSpec

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Argument", "Backend", "Pointer", "Prepared", "Scalar", "TensorMapArgument"]

CType = Literal["int", "long long", "float", "double"]


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number and the C type in which the kernel wants it."""

    c_type: CType
    value: float


@dataclass(frozen=True, slots=True)
class Pointer:
    """An address in the backend's memory, in bytes; 0 is null."""

    address: int


@dataclass(frozen=True, slots=True)
class TensorMapArgument:
    """A tensor map over the memory at an address; each backend encodes its own."""

    spec: TensorMapSpec
    address: int


Argument = Scalar | Pointer | TensorMapArgument


class Prepared(Protocol):
    """One launch with its arguments packed; repeated with other addresses.

    `launch` takes an address for each Pointer and TensorMapArgument, in their order.
    """

    def launch(self, addresses: Sequence[int], stream: int | None = None) -> None:
        """Queue it."""
        ...


class Backend(Protocol):
    """One way to run kernels. `Buffer` and `Loaded` are the backend's own objects.

    `address(buffer)` is the byte address that a Pointer carries. `stream` is the caller's stream
    handle, or None for the current one; the emulator ignores it.
    """

    @property
    def name(self) -> Literal["gpu", "emulator"]:
        """What the user calls it."""
        ...

    @property
    def device_name(self) -> str:
        """The card, as its driver names it; of the emulator, what it stands for."""
        ...

    @property
    def arch(self) -> str:
        """Architecture of the device, "sm_90"."""
        ...

    @property
    def sm_count(self) -> int:
        """Multiprocessors: SMS of a launch's expressions."""
        ...

    def load(self, compiled: CompiledKernel) -> Any:
        """The kernel, ready for `prepare`; LaunchError when the device cannot take it."""
        ...

    def unload(self, loaded: Any) -> None:
        """Give a loaded kernel up; nothing of it may be in flight."""
        ...

    def alloc(self, size_bytes: int) -> Any:
        """A buffer with any content; ResourceError when there is no room."""
        ...

    def free(self, buffer: Any) -> None:
        """Give a buffer back."""
        ...

    def upload(self, array: np.ndarray[Any, Any]) -> Any:
        """A new buffer with the array's elements, packed in C order."""
        ...

    def download(
        self, buffer: Any, dtype: np.dtype[Any], shape: tuple[int, ...]
    ) -> np.ndarray[Any, Any]:
        """The head of a buffer as a packed array, behind everything queued."""
        ...

    def write(self, buffer: Any, array: np.ndarray[Any, Any]) -> None:
        """Overwrite the head of a buffer."""
        ...

    def address(self, buffer: Any) -> int:
        """Where a buffer begins, in bytes."""
        ...

    def fill(self, buffer: Any, byte: int) -> None:
        """Set every byte of a buffer."""
        ...

    def resident_clusters(self, loaded: Any, launch: KernelLaunch) -> int:
        """Clusters of a launch that the device holds at once: CLUSTERS of its expressions."""
        ...

    def prepare(self, loaded: Any, launch: KernelLaunch, arguments: Sequence[Argument]) -> Prepared:
        """A launch with its arguments checked and packed, in the order of `launch.params`.

        LaunchError or ResourceError, with the numbers, when it cannot be.
        """
        ...

    def launch(
        self,
        loaded: Any,
        launch: KernelLaunch,
        arguments: Sequence[Argument],
        *,
        stream: int | None = None,
    ) -> None:
        """Queue one launch; `prepare` is for those that come again."""
        ...

    def synchronize(self) -> None:
        """Wait for everything queued; LaunchError when a kernel broke off."""
        ...
