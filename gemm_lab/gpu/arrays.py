"""Arrays of any library as address, shape and strides, without copying."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy

from gemm_lab.core.dtypes import ScalarType
from gemm_lab.errors import UsageError
from gemm_lab.gpu._cuda import cuda
from gemm_lab.gpu.array_view import ArrayView, may_overlap
from gemm_lab.gpu.streams import on_stream

__all__ = [
    "ArrayView",
    "copy_into",
    "empty_output",
    "may_overlap",
    "packed",
    "quick_looker",
    "view",
]

# Types that the lab's names do not carry keep NumPy's: float64, uint8.
_LAB_NAMES = {
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "fp8_e4m3",
    "int8": "int8",
    "int32": "int32",
}
_DLPACK_CPU, _DLPACK_CUDA, _DLPACK_CUDA_HOST, _DLPACK_CUDA_MANAGED = 1, 2, 3, 13


def view(array: Any, *, name: str = "array") -> ArrayView:
    """The view of a NumPy, CuPy or torch array, or of anything that offers the CUDA array
    interface or DLPack; UsageError, which calls it `name`, for all else.
    """
    if isinstance(array, numpy.ndarray):
        return _of_numpy(array, name)
    module = type(array).__module__.partition(".")[0]
    if module == "cupy":
        return _of_cupy(array, name)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return _of_torch(array, torch, name)
    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is not None:
        return _of_interface(array, interface, name)
    if hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__"):
        return _of_dlpack(array, name)
    raise UsageError(
        f"{name} is a {type(array).__module__}.{type(array).__qualname__}, not an array",
        hint="pass a NumPy or CuPy array, a torch tensor, or anything with "
        "__cuda_array_interface__ or __dlpack__; numpy.asarray makes one of a list",
    )


def _lab_name(dtype_name: str) -> str:
    return _LAB_NAMES.get(dtype_name, dtype_name)


def _element_strides(strides_bytes: Sequence[int], itemsize: int, name: str) -> tuple[int, ...]:
    if any(s % itemsize for s in strides_bytes):
        raise UsageError(
            f"{name} has strides of {tuple(strides_bytes)} bytes, no multiples of its "
            f"{itemsize}-byte elements",
            hint=f"pass {name}.copy()",
        )
    return tuple(s // itemsize for s in strides_bytes)


def _packed_strides(shape: Sequence[int]) -> tuple[int, ...]:
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def _of_numpy(array: numpy.ndarray[Any, Any], name: str) -> ArrayView:
    if isinstance(array, numpy.ma.MaskedArray) and numpy.ma.is_masked(array):
        raise UsageError(f"{name} is masked", hint=f"pass {name}.filled(0) or its data")
    if not array.dtype.isnative:
        raise UsageError(
            f"{name} has byte order {array.dtype.byteorder!r}",
            hint=f"pass {name}.astype({name}.dtype.newbyteorder('='))",
        )
    array = numpy.asarray(array)  # a numpy.matrix has two axes whatever is done to it
    return ArrayView(
        address=array.ctypes.data,
        shape=array.shape,
        strides=_element_strides(array.strides, array.itemsize or 1, name),
        scalar=_lab_name(array.dtype.name),
        itemsize=array.itemsize,
        device=None,
        readonly=not array.flags.writeable,
        owner=array,
    )


def _of_cupy(array: Any, name: str) -> ArrayView:
    return ArrayView(
        address=array.data.ptr,
        shape=array.shape,
        strides=_element_strides(array.strides, array.itemsize, name),
        scalar=_lab_name(array.dtype.name),
        itemsize=array.itemsize,
        device=array.data.device_id,
        owner=array,
    )


def _of_torch(tensor: Any, torch: Any, name: str) -> ArrayView:
    if tensor.layout != torch.strided:
        raise UsageError(f"{name} is a {tensor.layout} tensor", hint=f"pass {name}.to_dense()")
    if tensor.is_neg() or tensor.is_conj():
        raise UsageError(
            f"{name} is negated or conjugated lazily",
            hint=f"pass {name}.resolve_neg().resolve_conj()",
        )
    kind = tensor.device.type
    if kind not in ("cuda", "cpu"):
        raise UsageError(f"{name} lies on {tensor.device}", hint="move it to cuda or cpu")
    device = tensor.device.index if kind == "cuda" else None
    return ArrayView(
        address=tensor.data_ptr(),
        shape=tuple(tensor.shape),
        strides=tuple(tensor.stride()),
        scalar=_lab_name(str(tensor.dtype).removeprefix("torch.")),
        itemsize=tensor.element_size(),
        device=device,
        stream=None if device is None else torch.cuda.current_stream(device).cuda_stream,
        owner=tensor,
    )


def _of_interface(array: Any, interface: dict[str, Any], name: str) -> ArrayView:
    """CUDA Array Interface, version 3: numba.readthedocs.io, "CUDA Array Interface"."""
    if interface.get("mask") is not None:
        raise UsageError(f"{name} is masked", hint="pass an array without a mask")
    try:
        typestr: str = interface["typestr"]
        address, readonly = interface["data"]
        shape = tuple(interface["shape"])
    except (KeyError, TypeError, ValueError) as fault:
        raise UsageError(
            f"{name} has a __cuda_array_interface__ that cannot be read: {fault}",
            hint="shape, typestr and data = (address, readonly) are needed",
        ) from fault
    if typestr[0] == ">":
        raise UsageError(f"{name} is big-endian ({typestr})", hint="convert its byte order")
    # ml_dtypes' bfloat16 travels as two untyped bytes.
    dtype_name = "bfloat16" if typestr[1:] == "V2" else numpy.dtype(typestr).name
    itemsize = int(typestr[2:])
    strides_bytes = interface.get("strides")
    return ArrayView(
        address=address or 0,
        shape=shape,
        strides=_packed_strides(shape)
        if strides_bytes is None
        else _element_strides(strides_bytes, itemsize, name),
        scalar=_lab_name(dtype_name),
        itemsize=itemsize,
        device=_device_of(address) if address else cuda().runtime.getDevice(),
        readonly=bool(readonly),
        stream=interface.get("stream"),
        owner=array,
    )


def _device_of(address: int) -> int:
    return int(cuda().runtime.pointerGetAttributes(address).device)


def _of_dlpack(array: Any, name: str) -> ArrayView:
    kind, _ = array.__dlpack_device__()
    try:
        if int(kind) in (_DLPACK_CUDA, _DLPACK_CUDA_MANAGED):
            # The producer orders its work before CuPy's current stream.
            return _of_cupy(cuda().cupy.from_dlpack(array), name)
        if int(kind) in (_DLPACK_CPU, _DLPACK_CUDA_HOST):
            return _of_numpy(numpy.from_dlpack(array), name)
    except (BufferError, TypeError, ValueError, RuntimeError) as fault:
        raise UsageError(
            f"{name} cannot be read through DLPack: {fault}",
            hint="pass it as a NumPy or CuPy array",
        ) from fault
    raise UsageError(f"{name} lies on a device of DLPack type {int(kind)}, which is not CUDA")


@functools.cache
def quick_looker() -> Callable[[Any, Any, Any], tuple[object, tuple[int, int, int]] | None]:
    """A function for calls that come again and again with CuPy arrays.

    It maps (a, b, c) to a key and the three byte addresses, or None unless all three are plain
    CuPy arrays. Equal keys mean: same shapes, strides, element types, devices and alignment to
    16 bytes, so that whatever was decided for one call holds for the other, but for overlap.
    """
    ndarray = cuda().cupy.ndarray

    def quick_look(a: Any, b: Any, c: Any) -> tuple[object, tuple[int, int, int]] | None:
        if type(a) is not ndarray or type(b) is not ndarray or type(c) is not ndarray:
            return None
        a_data, b_data, c_data = a.data, b.data, c.data
        a_address, b_address, c_address = a_data.ptr, b_data.ptr, c_data.ptr
        key = (
            a.shape,
            a.strides,
            a.dtype,
            b.shape,
            b.strides,
            b.dtype,
            c.shape,
            c.strides,
            c.dtype,
            a_data.device_id,
            b_data.device_id,
            c_data.device_id,
            a_address & 15,
            b_address & 15,
            c_address & 15,
        )
        return key, (a_address, b_address, c_address)

    return quick_look


def empty_output(
    shape: tuple[int, ...], scalar: ScalarType, *, device: int, like: Any = None
) -> Any:
    """An uninitialised row-major array: a torch tensor when `like` is one, else CuPy's.

    UsageError when this CuPy has no such element type (bf16 needs CuPy 14).
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(like, torch.Tensor):
        names = {lab: name for name, lab in _LAB_NAMES.items()}
        dtype = getattr(torch, names[scalar.name])
        return torch.empty(shape, dtype=dtype, device=f"cuda:{device}")
    cupy = cuda().cupy
    with cupy.cuda.Device(device):
        try:
            return cupy.empty(shape, scalar.numpy())
        except (TypeError, ValueError) as fault:
            raise UsageError(
                f"CuPy {cupy.__version__} has no arrays of {scalar.name}",
                hint="update CuPy to 14, ask for out_dtype='fp32', or pass out= a torch tensor",
            ) from fault


_CARRIERS = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}


def packed(source: ArrayView, *, row_multiple: int = 1, stream: int | None = None) -> ArrayView:
    """A row-major copy on the same device, rows starting at multiples of `row_multiple` elements.

    Done by CuPy on `stream` (None: the current one); the caller reports it. The result's
    leading stride is the padded row; the padding holds zeros.
    """
    if source.device is None:
        raise UsageError("a host array is copied by uploading it")
    cupy = cuda().cupy
    shape = source.shape
    with on_stream(stream, source.device):
        row = max(-(-shape[-1] // row_multiple), 1) * row_multiple
        target = cupy.zeros((*shape[:-1], row), numpy.dtype(_CARRIERS[source.itemsize]))
        if source.size:
            target[..., : shape[-1]] = _raw(source)
    return ArrayView(
        address=target.data.ptr,
        shape=shape,
        strides=(*_packed_strides((*shape[:-1], row))[:-1], 1),
        scalar=source.scalar,
        itemsize=source.itemsize,
        device=source.device,
        owner=target,
    )


def copy_into(source: ArrayView, target: ArrayView, *, stream: int | None = None) -> None:
    """Copy elements between two device views of one shape and element size, on `stream`."""
    if target.device is None or not target.size:
        return
    with on_stream(stream, target.device):
        _raw(target)[...] = _raw(source)


def _raw(source: ArrayView) -> Any:
    """A CuPy array of unsigned integers over the elements of a device view."""
    cupy = cuda().cupy
    low, high = source.low, source.high
    memory = cupy.cuda.UnownedMemory(low, high - low, source.owner, source.device)
    return cupy.ndarray(
        source.shape,
        numpy.dtype(_CARRIERS[source.itemsize]),
        memptr=cupy.cuda.MemoryPointer(memory, source.address - low),
        strides=tuple(s * source.itemsize for s in source.strides),
    )
