"""Arithmetic that NumPy has not, or has with another meaning than PTX."""

from __future__ import annotations

import numpy as np

from gemm_lab.emulator.runtime.arrays import DTYPES, Array

__all__ = [
    "cnot",
    "ftz",
    "int_div",
    "int_rem",
    "mul_hi",
    "reciprocal",
    "saturate",
    "saturate_int",
]


TINY32 = np.float32(np.finfo(np.float32).tiny)


def int_div(a: Array, b: Array) -> Array:
    """Division that truncates; by zero it gives all bits set, as hardware does."""
    zero = b == 0
    safe = np.where(zero, np.ones((), b.dtype), b)
    if a.dtype.kind == "u":
        result = a // safe
    else:
        quotient = a // safe
        exact = quotient * safe == a
        result = np.where(~exact & ((a < 0) != (safe < 0)), quotient + 1, quotient)
    filler = np.array(-1, dtype=np.int64).astype(a.dtype)
    out: Array = np.where(zero, filler, result).astype(a.dtype, copy=False)
    return out


def int_rem(a: Array, b: Array) -> Array:
    """Remainder with the dividend's sign; by zero it gives the dividend."""
    zero = b == 0
    safe = np.where(zero, np.ones((), b.dtype), b)
    out: Array = np.where(zero, a, a - int_div(a, safe) * safe).astype(a.dtype, copy=False)
    return out


def mul_hi(a: Array, b: Array) -> Array:
    """Upper half of the product of two 16, 32 or 64-bit values."""
    bits = a.dtype.itemsize * 8
    if bits < 64:
        wide = np.int64 if a.dtype.kind == "i" else np.uint64
        out: Array = ((a.astype(wide) * b.astype(wide)) >> wide(bits)).astype(a.dtype)
        return out
    au, bu = a.view(np.uint64), b.view(np.uint64)
    mask, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    a0, a1, b0, b1 = au & mask, au >> half, bu & mask, bu >> half
    mid = a1 * b0 + ((a0 * b0) >> half)
    mid2 = a0 * b1 + (mid & mask)
    high = a1 * b1 + (mid >> half) + (mid2 >> half)
    if a.dtype.kind == "i":
        zero = np.uint64(0)
        high = high - np.where(a < 0, bu, zero) - np.where(b < 0, au, zero)
    result: Array = high.view(a.dtype)
    return result


def saturate_int(a: Array, dtype: str) -> Array:
    """A wider integer clamped to a type's range."""
    info = np.iinfo(DTYPES[dtype])
    out: Array = np.clip(a, info.min, info.max).astype(DTYPES[dtype])
    return out


def ftz(a: Array) -> Array:
    """Subnormals to zero, sign kept."""
    small = np.abs(a) < TINY32
    return np.where(small, np.copysign(np.float32(0), a), a) if small.any() else a


def reciprocal(a: Array) -> Array:
    """1 / a in a's type."""
    out: Array = a.dtype.type(1) / a
    return out


def saturate(a: Array) -> Array:
    """Clamped to [0, 1]; NaN becomes 0."""
    out: Array = np.where(
        np.isnan(a), a.dtype.type(0), np.clip(a, a.dtype.type(0), a.dtype.type(1))
    )
    return out


def cnot(a: Array) -> Array:
    """1 where a is 0, else 0."""
    out: Array = np.equal(a, 0).astype(a.dtype)
    return out
