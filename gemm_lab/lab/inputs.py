"""Seeded inputs: uniform in [-1, 1], never zeros, the same numbers on every backend."""

from __future__ import annotations

from typing import Any

from gemm_lab.core.dtypes import ScalarType

__all__ = ["decode", "encode", "uniform"]

Array = Any
_INT8_RANGE = 127


def uniform(shape: tuple[int, ...], scalar: ScalarType, *, seed: int) -> Array:
    """Values uniform in [-1, 1] (int8: -127 to 127), rounded to the type, on the host."""
    import numpy

    generator = numpy.random.Generator(numpy.random.SFC64(seed))
    if scalar.name in ("int8", "int32"):
        return generator.integers(
            -_INT8_RANGE, _INT8_RANGE, size=shape, dtype=scalar.numpy(), endpoint=True
        )
    values = generator.random(size=shape, dtype=numpy.float32)
    values *= 2
    values -= 1
    return encode(values, scalar)


def encode(values: Array, scalar: ScalarType) -> Array:
    """float32 values in the storage type, as the host carries it."""
    import numpy

    if scalar.name == "fp8_e4m3":
        import ml_dtypes

        return values.astype(ml_dtypes.float8_e4m3fn).view(numpy.uint8)
    return values.astype(scalar.numpy(), copy=False)


def decode(array: Array, scalar: ScalarType) -> Array:
    """Storage to float64; NumPy's own arrays only."""
    import numpy

    if scalar.name == "fp8_e4m3":
        import ml_dtypes

        array = array.view(ml_dtypes.float8_e4m3fn)
    return array.astype(numpy.float64)
