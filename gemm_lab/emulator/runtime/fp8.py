"""Eight-bit floats: e4m3 and e5m2."""

from __future__ import annotations

import math

import numpy as np

from gemm_lab.emulator.runtime.arrays import Array
from gemm_lab.emulator.runtime.halves import half_wide, pack2, unpack2

__all__ = [
    "cvt_fp8",
    "fp8_values",
]


def _fp8_table(kind: str) -> Array:
    """All 256 values of e4m3 or e5m2 as float32."""
    exponent_bits, fraction_bits, bias = (4, 3, 7) if kind.startswith("e4m3") else (5, 2, 15)
    values = []
    for code in range(256):
        sign = -1.0 if code & 0x80 else 1.0
        exponent = (code & 0x7F) >> fraction_bits
        fraction = code & ((1 << fraction_bits) - 1)
        if exponent == 0:
            value = math.ldexp(fraction, 1 - bias - fraction_bits)
        else:
            value = math.ldexp((1 << fraction_bits) + fraction, exponent - bias - fraction_bits)
        if kind.startswith("e4m3") and code & 0x7F == 0x7F:
            value = math.nan
        if kind.startswith("e5m2") and exponent == 31:
            value = math.inf if fraction == 0 else math.nan
        values.append(sign * value)
    del exponent_bits
    return np.array(values, dtype=np.float32)


_TABLES = {kind: _fp8_table(kind) for kind in ("e4m3", "e5m2")}


def _encode_fp8(value: Array, kind: str) -> Array:
    """To nearest even, clamped to the largest finite value (.satfinite)."""
    table = fp8_values(kind)
    positive = table[:128]
    finite = positive[np.isfinite(positive)]
    top = len(finite) - 1
    size = np.abs(value.astype(np.float64))
    at = np.clip(np.searchsorted(finite, size, side="right") - 1, 0, top)
    low = finite[at].astype(np.float64)
    high = finite[np.minimum(at + 1, top)].astype(np.float64)
    middle = (low + high) / 2
    up = (size > middle) | ((size == middle) & (at % 2 == 1))
    code = np.where(up, np.minimum(at + 1, top), at)
    code = np.where(np.isnan(value), 0x7F, code)
    sign = np.where(np.signbit(value), 0x80, 0)
    out: Array = (code | sign).astype(np.int16)
    return out


def cvt_fp8(to: str, of: str, relu: bool, *sources: Array) -> Array:
    """Packed conversions to and from e4m3x2 and e5m2x2."""
    if to.startswith("e"):
        if of == "f32":
            high, low = sources
        else:
            low16, high16 = unpack2(sources[0])
            kind = "bf16" if of == "bf16x2" else "f16"
            low, high = half_wide(low16, kind), half_wide(high16, kind)
        if relu:
            low, high = (np.where(v > 0, v, np.float32(0)) for v in (low, high))
        out: Array = _encode_fp8(low, to) | (_encode_fp8(high, to) << 8)
        return out.astype(np.int16)
    codes = sources[0].astype(np.int32) & 0xFFFF
    table = fp8_values(of)
    low, high = table[codes & 0xFF], table[codes >> 8]
    if relu:
        low, high = (np.where(v > 0, v, np.float32(0)) for v in (low, high))
    return pack2(low.astype(np.float16).view(np.int16), high.astype(np.float16).view(np.int16))


def fp8_values(kind: str) -> Array:
    """The 256 values of e4m3 or e5m2, by code, as float32."""
    return _TABLES[kind[:4]]
