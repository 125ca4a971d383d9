"""Rows of a device matrix in float64, for the reference that is computed where the data lie."""

from __future__ import annotations

from typing import Any

import numpy

from gemm_lab.core.dtypes import ScalarType
from gemm_lab.gpu._cuda import cuda

__all__ = ["float64_rows"]

_CARRIERS = {1: "uint8", 2: "uint16", 4: "uint32"}


def float64_rows(
    buffer: Any,
    scalar: ScalarType,
    shape: tuple[int, int, int],
    strides: tuple[int, int, int],
    block: slice,
) -> Any:
    """A CuPy float64 array [batch, rows of block, cols]; strides in elements.

    bf16 and fp8 are widened by hand, since not every CuPy knows them.
    """
    cupy = cuda().cupy
    raw = cupy.ndarray(
        shape,
        numpy.dtype(_CARRIERS[scalar.size_bytes]),
        memptr=buffer.memory,
        strides=tuple(x * scalar.size_bytes for x in strides),
    )[:, block]
    raw = cupy.ascontiguousarray(raw)
    if scalar.name == "bf16":
        return (raw.astype("uint32") << 16).view("float32").astype("float64")
    if scalar.name == "fp8_e4m3":
        return cupy.asarray(_fp8_values())[raw]
    return raw.view(scalar.numpy()).astype("float64")


def _fp8_values() -> numpy.ndarray[Any, Any]:
    """All 256 values of e4m3."""
    import ml_dtypes

    codes = numpy.arange(256, dtype=numpy.uint8)
    values: numpy.ndarray[Any, Any] = codes.view(ml_dtypes.float8_e4m3fn).astype(numpy.float64)
    return values
