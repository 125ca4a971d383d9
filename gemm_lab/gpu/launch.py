"""A launch packed once: later calls rewrite the addresses and nothing else.

cuLaunchKernel reads its arguments through an array of addresses. Both lie in one block of host
memory here, pointers first, so that one `pack_into` sets them all. A call takes a block from a
list and gives it back: two threads never share one, and no lock is taken.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from gemm_lab.core.backend import Argument, Pointer, Scalar, TensorMapArgument
from gemm_lab.core.kernel import KernelLaunch, TensorMapSpec
from gemm_lab.errors import GemmLabError, LaunchError, UsageError

__all__ = ["ArgumentBlock", "ArgumentLayout", "LaunchCalls", "PreparedLaunch", "prepare_launch"]

TENSOR_MAP_BYTES = 128
TENSOR_MAP_ALIGNMENT = 64
SLOT_BYTES = 8
_FORMATS = {"int": "<i", "long long": "<q", "float": "<f", "double": "<d"}
_INVALID_CONTEXT = 201


def pack_scalar(scalar: Scalar) -> bytes:
    """The number as the kernel's C type lays it out; UsageError when it does not fit."""
    whole = scalar.c_type in ("int", "long long")
    try:
        return struct.pack(
            _FORMATS[scalar.c_type], int(scalar.value) if whole else float(scalar.value)
        )
    except (struct.error, OverflowError) as fault:
        raise UsageError(
            f"{scalar.value} does not fit the kernel's {scalar.c_type}", hint=str(fault)
        ) from fault


class ArgumentBlock:
    """Host memory of one launch; `params` is the address of its address array."""

    __slots__ = ("_keep", "map_offsets", "memory", "params")

    def __init__(self, layout: ArgumentLayout) -> None:
        keep = (ctypes.c_ubyte * (layout.size_bytes + TENSOR_MAP_ALIGNMENT))()
        shift = -ctypes.addressof(keep) % TENSOR_MAP_ALIGNMENT
        base = ctypes.addressof(keep) + shift
        self._keep = keep
        self.memory = memoryview(keep).cast("B")[shift : shift + layout.size_bytes]
        self.memory[: len(layout.image)] = layout.image
        self.params = base + layout.array_offset
        self.map_offsets = layout.map_offsets
        struct.pack_into(
            f"={len(layout.offsets)}Q",
            self.memory,
            layout.array_offset,
            *(base + offset for offset in layout.offsets),
        )


@dataclass(frozen=True, kw_only=True)
class ArgumentLayout:
    """Where each argument stands in a block; offsets in bytes.

    `offsets` follow the kernel's parameters; `map_offsets` the tensor maps among them;
    `image` is the block before its address array, scalars filled in.
    """

    image: bytes
    offsets: tuple[int, ...]
    map_offsets: tuple[int, ...]
    pointer_count: int
    array_offset: int
    size_bytes: int

    @classmethod
    def of(cls, arguments: Sequence[Argument]) -> ArgumentLayout:
        """Pointers first, then tensor maps on 64-byte boundaries, then scalars."""
        pointer_count = sum(isinstance(a, Pointer) for a in arguments)
        map_count = sum(isinstance(a, TensorMapArgument) for a in arguments)
        next_pointer = 0
        next_map = _align(pointer_count * SLOT_BYTES, TENSOR_MAP_ALIGNMENT)
        next_scalar = next_map + map_count * TENSOR_MAP_BYTES
        array_offset = next_scalar + SLOT_BYTES * (len(arguments) - pointer_count - map_count)
        image = bytearray(array_offset)
        offsets: list[int] = []
        map_offsets: list[int] = []
        for argument in arguments:
            if isinstance(argument, Pointer):
                offsets.append(next_pointer)
                struct.pack_into("=Q", image, next_pointer, argument.address)
                next_pointer += SLOT_BYTES
            elif isinstance(argument, TensorMapArgument):
                offsets.append(next_map)
                map_offsets.append(next_map)
                next_map += TENSOR_MAP_BYTES
            else:
                offsets.append(next_scalar)
                packed = pack_scalar(argument)
                image[next_scalar : next_scalar + len(packed)] = packed
                next_scalar += SLOT_BYTES
        return cls(
            image=bytes(image),
            offsets=tuple(offsets),
            map_offsets=tuple(map_offsets),
            pointer_count=pointer_count,
            array_offset=array_offset,
            size_bytes=array_offset + SLOT_BYTES * len(arguments),
        )


def _align(offset: int, to: int) -> int:
    return -(-offset // to) * to


@dataclass(frozen=True, kw_only=True)
class LaunchCalls:
    """What a launch asks of CUDA; a test hands in its own.

    Attributes:
        launch_kernel: cuLaunchKernel as CuPy wraps it.
        current_stream: the calling thread's stream on the current device; `.ptr` is its handle.
        current_device: index of the calling thread's device.
        use_device: a context manager that makes a device current.
        bind_context: makes the device's context current in a thread that has none.
        encode_tensor_map: the 128 bytes of a tensor map over an address.
        errors: what a failed call raises.
        translate: the lab's error for it.
    """

    launch_kernel: Callable[..., None]
    current_stream: Callable[[], Any]
    current_device: Callable[[], int]
    use_device: Callable[[int], Any]
    bind_context: Callable[[int], None]
    encode_tensor_map: Callable[[TensorMapSpec, int], bytes]
    errors: tuple[type[Exception], ...]
    translate: Callable[[BaseException, str], GemmLabError]


class PreparedLaunch:
    """One launch, ready to be repeated.

    `launch(addresses, stream=None)` takes one byte address for each Pointer and
    TensorMapArgument of the prepared arguments, in their order, and a stream handle
    (None: the calling thread's current stream on the kernel's device).
    """

    __slots__ = ("_owner", "description", "launch", "pointer_params")

    launch: Callable[..., None]

    def __init__(
        self,
        *,
        launch: Callable[..., None],
        pointer_params: tuple[str, ...],
        description: str,
        owner: object,
    ) -> None:
        self.launch = launch
        self.pointer_params = pointer_params
        self.description = description
        self._owner = owner  # the module must outlive every launch of it

    def __repr__(self) -> str:
        return f"PreparedLaunch({self.description})"


def prepare_launch(
    *,
    function: int,
    launch: KernelLaunch,
    arguments: Sequence[Argument],
    device: int,
    calls: LaunchCalls,
    description: str,
    owner: object = None,
) -> PreparedLaunch:
    """Pack the arguments for a function handle; limits are the caller's to check."""
    layout = ArgumentLayout.of(arguments)
    run = partial(calls.launch_kernel, function, *launch.grid, *launch.block, launch.smem_bytes)
    maps = tuple(a.spec for a in arguments if isinstance(a, TensorMapArgument))
    write = (
        _map_writer(arguments, maps, calls.encode_tensor_map)
        if maps
        else _pointer_writer(layout.pointer_count)
    )
    named = zip(launch.params, arguments, strict=True)
    return PreparedLaunch(
        launch=_launcher(run, write, layout, device, calls, description),
        pointer_params=tuple(name for name, a in named if not isinstance(a, Scalar)),
        description=description,
        owner=owner,
    )


Writer = Callable[[ArgumentBlock, Sequence[int]], None]


def _pointer_writer(count: int) -> Writer:
    pack = struct.Struct(f"={count}Q").pack_into

    def write(block: ArgumentBlock, addresses: Sequence[int]) -> None:
        pack(block.memory, 0, *addresses)

    return write


def _map_writer(
    arguments: Sequence[Argument],
    maps: Sequence[TensorMapSpec],
    encode: Callable[[TensorMapSpec, int], bytes],
) -> Writer:
    movable = [a for a in arguments if not isinstance(a, Scalar)]
    pointers = [i for i, a in enumerate(movable) if isinstance(a, Pointer)]
    mapped = [i for i, a in enumerate(movable) if isinstance(a, TensorMapArgument)]
    pack = struct.Struct(f"={len(pointers)}Q").pack_into
    # Remembered by address alone here: hashing a whole spec costs a microsecond.
    encoders = [lru_cache(maxsize=64)(partial(encode, spec)) for spec in maps]

    def write(block: ArgumentBlock, addresses: Sequence[int]) -> None:
        if len(addresses) != len(movable):
            raise struct.error(f"{len(movable)} addresses are needed, got {len(addresses)}")
        pack(block.memory, 0, *[addresses[i] for i in pointers])
        for offset, encoder, index in zip(block.map_offsets, encoders, mapped, strict=True):
            block.memory[offset : offset + TENSOR_MAP_BYTES] = encoder(addresses[index])

    return write


def _launcher(
    run: Callable[[int, int, int], None],
    write: Writer,
    layout: ArgumentLayout,
    device: int,
    calls: LaunchCalls,
    description: str,
) -> Callable[..., None]:
    # Closure cells instead of attributes: this is the road that is counted in microseconds.
    idle = [ArgumentBlock(layout)]
    take, give = idle.pop, idle.append
    current_stream, current_device, errors = (
        calls.current_stream,
        calls.current_device,
        calls.errors,
    )

    def launch(addresses: Sequence[int], stream: int | None = None) -> None:
        try:
            block = take()
        except IndexError:  # every block is in another thread's hands
            block = ArgumentBlock(layout)
        try:
            write(block, addresses)
            if current_device() == device:
                run(current_stream().ptr if stream is None else stream, block.params, 0)
            else:
                with calls.use_device(device):
                    run(current_stream().ptr if stream is None else stream, block.params, 0)
        except errors as fault:
            recover(fault, block, stream)
        except struct.error as fault:
            raise LaunchError(f"wrong addresses for {description}: {fault}") from fault
        finally:
            give(block)

    def recover(fault: Exception, block: ArgumentBlock, stream: int | None) -> None:
        if getattr(fault, "status", None) != _INVALID_CONTEXT:
            raise calls.translate(fault, description) from fault
        # A new thread has no context until the runtime binds one.
        try:
            with calls.use_device(device):
                calls.bind_context(device)
                run(current_stream().ptr if stream is None else stream, block.params, 0)
        except errors as again:
            raise calls.translate(again, description) from again

    return launch
