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

    def launch(self, addresses: Sequence[int], stream: int | None = None) -> None: ...


class Backend(Protocol):
    """One way to run kernels. `Buffer` and `Loaded` are the backend's own objects.

    `address(buffer)` is the byte address that a Pointer carries. `stream` is the caller's stream
    handle, or None for the current one; the emulator ignores it.
    """

    @property
    def name(self) -> Literal["gpu", "emulator"]: ...

    @property
    def device_name(self) -> str: ...

    @property
    def arch(self) -> str: ...

    @property
    def sm_count(self) -> int: ...

    def load(self, compiled: CompiledKernel) -> Any: ...

    def unload(self, loaded: Any) -> None: ...

    def alloc(self, size_bytes: int) -> Any: ...

    def free(self, buffer: Any) -> None: ...

    def upload(self, array: np.ndarray[Any, Any]) -> Any: ...

    def download(
        self, buffer: Any, dtype: np.dtype[Any], shape: tuple[int, ...]
    ) -> np.ndarray[Any, Any]: ...

    def write(self, buffer: Any, array: np.ndarray[Any, Any]) -> None: ...

    def address(self, buffer: Any) -> int: ...

    def fill(self, buffer: Any, byte: int) -> None: ...

    def prepare(
        self, loaded: Any, launch: KernelLaunch, arguments: Sequence[Argument]
    ) -> Prepared: ...

    def launch(
        self,
        loaded: Any,
        launch: KernelLaunch,
        arguments: Sequence[Argument],
        *,
        stream: int | None = None,
    ) -> None: ...

    def synchronize(self) -> None: ...
