"""Conversions where source or result is a float."""

from __future__ import annotations

import math

import numpy as np

from gemm_lab.emulator.runtime.arith import ftz, saturate
from gemm_lab.emulator.runtime.arrays import DTYPES, Array
from gemm_lab.emulator.runtime.halves import bf16_to_f32, f32_to_bf16, pack2
from gemm_lab.emulator.runtime.rounding import narrow, round_step

__all__ = [
    "cvt_float",
    "cvt_pack",
    "round_tf32",
]


NUMPY = {"s8": "i8", "u8": "u8", "s16": "i16", "u16": "u16", "s32": "i32", "u32": "u32",
         "s64": "i64", "u64": "u64", "f16": "f16", "f32": "f32", "f64": "f64"}  # fmt: skip
INT_ROUND = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def cvt_pack(to: str, mode: str, relu: bool, high: Array, low: Array) -> Array:
    """Two float32 to one word of halves; the first source goes to the upper half."""
    parts = []
    for a in (low, high):
        value = np.where(a > 0, a, np.float32(0)) if relu else a
        if to == "bf16x2":
            parts.append(f32_to_bf16(value, mode))
        else:
            parts.append(_to_f16(value.astype(np.float64), mode))
    return pack2(parts[0], parts[1])


def _to_f16(wide: Array, mode: str) -> Array:
    nearest = wide.astype(np.float16)
    if mode in ("rz", "rm", "rp"):
        nearest = round_step(nearest, wide - nearest.astype(np.float64), mode)
    return nearest.view(np.int16)


def _to_integer(wide: Array, to: str, mode: str) -> Array:
    """Round, clamp to the type's range, NaN to 0 (PTX ISA, "cvt": to integer saturates)."""
    rounded = INT_ROUND[mode or "rzi"](wide)
    info = np.iinfo(DTYPES[NUMPY[to]])
    nan = np.isnan(rounded)
    rounded = np.where(nan, 0.0, rounded)
    limit = math.ldexp(1.0, info.bits - (1 if info.min < 0 else 0))
    low, high = rounded <= float(info.min), rounded >= limit
    inside = np.where(low | high, 0.0, rounded)
    whole: Array = inside.astype(np.uint64 if to == "u64" else np.int64)
    whole = whole.astype(DTYPES[NUMPY[to]])
    out: Array = np.where(
        high,
        DTYPES[NUMPY[to]].type(info.max),
        np.where(low, DTYPES[NUMPY[to]].type(info.min), whole),
    )
    return out


def round_tf32(a: Array, mode: str) -> Array:
    """float32 with 10 bits of fraction; .rna rounds halves away from zero."""
    bits = np.ascontiguousarray(a).view(np.uint32)
    if mode == "rna":
        moved = bits + np.uint32(0x1000)
    elif mode == "rz":
        moved = bits
    else:
        moved = bits + np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))
    out = (moved & np.uint32(0xFFFFE000)).view(np.float32)
    return np.where(np.isfinite(a), out, a)


def cvt_float(a: Array, to: str, of: str, mode: str, sat: bool, flush: bool, relu: bool) -> Array:
    """cvt where source or result is a float. 16-bit bf16 travels as int16 bits."""
    if of == "bf16":
        wide: Array = bf16_to_f32(a)
    elif of == "f16":
        wide = a.astype(np.float32)
    else:
        wide = ftz(a) if flush and of == "f32" else a
    if to[0] in "us":
        return _to_integer(wide.astype(np.float64), to, mode)
    if mode in INT_ROUND:
        wide = INT_ROUND[mode](wide)
    if sat:
        wide = saturate(wide)
    if relu:
        wide = np.where(wide > 0, wide, wide.dtype.type(0))
    return _to_float(wide, to, mode, flush)


def _to_float(wide: Array, to: str, mode: str, flush: bool) -> Array:
    if to == "tf32":
        return round_tf32(wide, mode)
    if to == "bf16":
        if wide.dtype != np.float32:
            narrow = wide.astype(np.float32)
            return f32_to_bf16(narrow, mode or "rn")
        return f32_to_bf16(wide, "rz" if mode == "rz" else "rn")
    if to == "f16":
        return _to_f16(wide.astype(np.float64), mode).view(np.float16)
    if to == "f64":
        return wide.astype(np.float64)
    if wide.dtype == np.float32:
        result = wide
    elif mode in ("rz", "rm", "rp"):
        result = _narrow_any(wide, mode)
    else:
        result = wide.astype(np.float32)
    return ftz(result) if flush else result


def _narrow_any(wide: Array, mode: str) -> Array:
    if wide.dtype == np.float64:
        return narrow(wide, mode)
    exact = wide.astype(np.longdouble)
    nearest = exact.astype(np.float32)
    return round_step(nearest, (exact - nearest).astype(np.float64), mode)
