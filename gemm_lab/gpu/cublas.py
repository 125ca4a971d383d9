"""cuBLAS's gemmEx on a stream handle.

CuPy finds and loads the library. Its own gemmEx refuses a stream that is being captured into a
graph, which is how short kernels are timed, so the library is called directly, with a handle of
its own, where its path is known (Linux), and through CuPy elsewhere.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemm_lab.gpu._cuda import cuda
from gemm_lab.gpu.blas_types import BlasTypes, ColumnMajor

__all__ = ["Cublas", "load_cublas"]

_GEMM_DEFAULT = -1
_MAPS = Path("/proc/self/maps")
_HANDLE = ctypes.c_void_p
_INT = ctypes.c_int
_POINTER = ctypes.c_void_p
_LONG = ctypes.c_longlong

_GEMM_EX = (
    *(_HANDLE, _INT, _INT, _INT, _INT, _INT, _POINTER),
    *(_POINTER, _INT, _INT, _POINTER, _INT, _INT, _POINTER, _POINTER, _INT, _INT, _INT, _INT),
)
_GEMM_STRIDED_EX = (
    *(_HANDLE, _INT, _INT, _INT, _INT, _INT, _POINTER),
    *(_POINTER, _INT, _INT, _LONG, _POINTER, _INT, _INT, _LONG),
    *(_POINTER, _POINTER, _INT, _INT, _LONG, _INT, _INT, _INT),
)


class CublasError(RuntimeError):
    """cuBLAS refused a call; `cublas_status` is its cublasStatus_t."""

    def __init__(self, call: str, status: int) -> None:
        super().__init__(f"{call}: cublasStatus_t {status}")
        self.cublas_status = status


@dataclass(frozen=True, kw_only=True)
class Cublas:
    """The loaded library, a handle for the current device, and its version (120901 for 12.9.1).

    `capturable` says whether calls may be recorded into a graph.
    """

    handle: int
    version: int
    capturable: bool
    set_stream: Callable[[int, int], Any]
    gemm_ex: Callable[..., Any]
    gemm_strided_batched_ex: Callable[..., Any]

    def gemm(
        self,
        types: BlasTypes,
        q: ColumnMajor,
        *,
        first: int,
        second: int,
        c: int,
        alpha_at: int,
        beta_at: int,
        stream: int,
    ) -> None:
        """C = alpha * first * second + beta * C, column-major, on a stream handle.

        `first`, `second`, `c` are device addresses; alpha and beta are read from the host.
        """
        self.set_stream(self.handle, stream)
        if q.batch == 1:
            self.gemm_ex(
                *(self.handle, q.first_op, q.second_op, q.m, q.n, q.k, alpha_at),
                *(first, types.operand, q.first_ld, second, types.operand, q.second_ld),
                *(beta_at, c, types.out, q.ldc, types.compute_number, _GEMM_DEFAULT),
            )
        else:
            self.gemm_strided_batched_ex(
                *(self.handle, q.first_op, q.second_op, q.m, q.n, q.k, alpha_at),
                *(first, types.operand, q.first_ld, q.first_stride),
                *(second, types.operand, q.second_ld, q.second_stride),
                *(beta_at, c, types.out, q.ldc, q.stride_c),
                *(q.batch, types.compute_number, _GEMM_DEFAULT),
            )


def load_cublas() -> Cublas:
    """cuBLAS for the current device; ImportError when it is not installed."""
    from cupy_backends.cuda.libs import cublas

    path = _loaded_path()
    if path is not None:
        return _direct(path, cuda().runtime.getDevice())
    from cupy.cuda.device import get_cublas_handle

    handle = get_cublas_handle()
    return Cublas(
        handle=handle,
        version=cublas.getVersion(handle),
        capturable=False,
        set_stream=cublas.setStream,
        gemm_ex=cublas.gemmEx,
        gemm_strided_batched_ex=cublas.gemmStridedBatchedEx,
    )


@functools.cache
def _direct(path: str, device: int) -> Cublas:
    """The library itself, with one handle a device that lives as long as the process.

    CuPy's handle would do, if it were sure that no second copy of cuBLAS is loaded.
    """
    del device  # the current one: it is what the handle belongs to
    library = ctypes.CDLL(path)
    handle, version = ctypes.c_void_p(), ctypes.c_int()
    _checked(library, "cublasCreate_v2", (_POINTER,))(ctypes.addressof(handle))
    address = handle.value or 0
    get_version = _checked(library, "cublasGetVersion_v2", (_HANDLE, _POINTER))
    get_version(address, ctypes.addressof(version))
    return Cublas(
        handle=address,
        version=version.value,
        capturable=True,
        set_stream=_checked(library, "cublasSetStream_v2", (_HANDLE, _HANDLE)),
        gemm_ex=_checked(library, "cublasGemmEx", _GEMM_EX),
        gemm_strided_batched_ex=_checked(library, "cublasGemmStridedBatchedEx", _GEMM_STRIDED_EX),
    )


def _checked(library: ctypes.CDLL, name: str, types: tuple[type, ...]) -> Callable[..., None]:
    function = getattr(library, name)
    function.argtypes = types
    function.restype = _INT

    def call(*arguments: int) -> None:
        status = function(*arguments)
        if status:
            raise CublasError(name, status)

    return call


def _loaded_path(maps: Path = _MAPS) -> str | None:
    """The file of the cuBLAS in this process."""
    try:
        lines = maps.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        _, slash, tail = line.partition("/")
        if slash and tail.rpartition("/")[2].startswith("libcublas.so"):
            return slash + tail
    return None
