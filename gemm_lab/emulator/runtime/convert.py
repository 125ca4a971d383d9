"""Conversions between number types, and arithmetic on 16-bit floats."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from gemm_lab.emulator.runtime.arith import (
    bf16_to_f32,
    f32_to_bf16,
    fma16,
    fma_bf16,
    ftz,
    pack2,
    unpack2,
)
from gemm_lab.emulator.runtime.arrays import DTYPES, Array

__all__ = [
    "cnot",
    "cvt_float",
    "cvt_fp8",
    "cvt_pack",
    "directed",
    "directed_fma",
    "half_op",
    "half_wide",
    "reciprocal",
    "saturate",
]

NUMPY = {"s8": "i8", "u8": "u8", "s16": "i16", "u16": "u16", "s32": "i32", "u32": "u32",
         "s64": "i64", "u64": "u64", "f16": "f16", "f32": "f32", "f64": "f64"}  # fmt: skip
INT_ROUND = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def reciprocal(a: Array) -> Array:
    """1 / a in a's type."""
    out: Array = a.dtype.type(1) / a
    return out


def saturate(a: Array) -> Array:
    """Clamped to [0, 1]; NaN becomes 0."""
    out: Array = np.where(np.isnan(a), a.dtype.type(0), np.clip(a, a.dtype.type(0), a.dtype.type(1)))
    return out


def cnot(a: Array) -> Array:
    """1 where a is 0, else 0."""
    return (a == 0).astype(a.dtype)


# ---- directed rounding ----
def _step(nearest: Array, error: Array, mode: str) -> Array:
    """Move a nearest result one step where the exact value lies on the other side.

    `error` has the sign of exact - nearest.
    """
    inf = nearest.dtype.type(np.inf)
    if mode == "rz":
        back = ((nearest > 0) & (error < 0)) | ((nearest < 0) & (error > 0))
        out: Array = np.where(back, np.nextafter(nearest, nearest.dtype.type(0)), nearest)
    elif mode == "rm":
        out = np.where(error < 0, np.nextafter(nearest, -inf), nearest)
    else:
        out = np.where(error > 0, np.nextafter(nearest, inf), nearest)
    return out


def _narrow(wide: Array, mode: str) -> Array:
    """float64 to float32 in a direction."""
    nearest = wide.astype(np.float32)
    return _step(nearest, wide - nearest.astype(np.float64), mode)


def directed(a: Array, b: Array, sign: str, mode: str) -> Array:
    """add, sub, mul, div rounded toward zero (rz), down (rm) or up (rp)."""
    if a.dtype == np.float32:
        x, y = a.astype(np.float64), b.astype(np.float64)
        if sign == "+":
            wide, error = _sum(x, y)
        elif sign == "-":
            wide, error = _sum(x, -y)
        elif sign == "*":
            wide, error = x * y, np.zeros(1)
        else:
            wide = x / y
            error = np.zeros(1)
        nearest = wide.astype(np.float32)
        gap = wide - nearest.astype(np.float64)
        return _step(nearest, np.where(gap != 0, gap, error), mode)
    if sign in "+-":
        total, error = _sum(a, b if sign == "+" else -b)
        return _step(total, error, mode)
    wide_a, wide_b = a.astype(np.longdouble), b.astype(np.longdouble)
    exact = wide_a * wide_b if sign == "*" else wide_a / wide_b
    nearest = exact.astype(np.float64)
    return _step(nearest, (exact - nearest).astype(np.float64), mode)


def _sum(a: Array, b: Array) -> tuple[Array, Array]:
    s = a + b
    v = s - a
    return s, (a - (s - v)) + (b - v)


def directed_fma(a: Array, b: Array, c: Array, mode: str) -> Array:
    """Fused multiply-add rounded in a direction."""
    if a.dtype == np.float32:
        p = a.astype(np.float64) * b.astype(np.float64)
        wide, error = _sum(p, c.astype(np.float64))
        nearest = wide.astype(np.float32)
        gap = wide - nearest.astype(np.float64)
        return _step(nearest, np.where(gap != 0, gap, error), mode)
    exact = a.astype(np.longdouble) * b.astype(np.longdouble) + c.astype(np.longdouble)
    near = exact.astype(np.float64)
    return _step(near, (exact - near).astype(np.float64), mode)


# ---- halves ----
def half_wide(a: Array, kind: str) -> Array:
    """f16 or bf16 bits as float32."""
    return bf16_to_f32(a) if kind == "bf16" else a.view(np.float16).astype(np.float32)


def _half_narrow(a: Array, brain: bool) -> Array:
    return f32_to_bf16(a.astype(np.float32)) if brain else a.astype(np.float16).view(np.int16)


def _quiet(a: Array, b: Array, pick: Callable[[Array, Array], Array]) -> Array:
    return pick(a, b)


def _half_one(op: str, brain: bool, args: tuple[Array, ...]) -> Array:
    if op == "fma":
        if brain:
            return fma_bf16(*args)
        return fma16(*(a.view(np.float16) for a in args)).view(np.int16)
    if op in ("abs", "neg"):
        bits = args[0]
        out: Array = bits & np.int16(0x7FFF) if op == "abs" else bits ^ np.int16(-0x8000)
        return out
    wide = [bf16_to_f32(a) if brain else a.view(np.float16).astype(np.float32) for a in args]
    if op == "add":
        result = wide[0] + wide[1]
    elif op == "sub":
        result = wide[0] - wide[1]
    elif op == "mul":
        result = wide[0] * wide[1]
    elif op in ("min", "max"):
        result = (np.fmin if op == "min" else np.fmax)(wide[0], wide[1])
    elif op in ("minnan", "maxnan"):
        result = (np.minimum if op == "minnan" else np.maximum)(wide[0], wide[1])
    elif op == "sat":
        result = saturate(wide[0])
    elif op == "relu":
        result = np.where(wide[0] > 0, wide[0], np.float32(0))
    elif op == "ex2":
        result = np.exp2(wide[0])
    elif op == "tanh":
        result = np.tanh(wide[0])
    else:
        raise NotImplementedError(op)
    return _half_narrow(result, brain)


def half_op(op: str, form: str, args: tuple[Array, ...]) -> Array:
    """An operation on f16 or bf16 bits; form "h2" and "b2" work on both halves of a word."""
    brain = form[0] == "b"
    if form[1] == "1":
        return _half_one(op, brain, args)
    halves = [unpack2(a) for a in args]
    low = _half_one(op, brain, tuple(h[0] for h in halves))
    high = _half_one(op, brain, tuple(h[1] for h in halves))
    return pack2(low, high)


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
        nearest = _step(nearest, wide - nearest.astype(np.float64), mode)
    return nearest.view(np.int16)


# ---- floats ----
def _to_integer(wide: Array, to: str, mode: str) -> Array:
    """Round, clamp to the type's range, NaN to 0 (PTX ISA, "cvt": to integer saturates)."""
    rounded = INT_ROUND[mode or "rzi"](wide)
    info = np.iinfo(DTYPES[NUMPY[to]])
    nan = np.isnan(rounded)
    rounded = np.where(nan, 0.0, rounded)
    limit = math.ldexp(1.0, info.bits - (1 if info.min < 0 else 0))
    low, high = rounded <= float(info.min), rounded >= limit
    inside = np.where(low | high, 0.0, rounded)
    if to == "u64":
        whole = inside.astype(np.uint64)
    else:
        whole = inside.astype(np.int64)
    whole = whole.astype(DTYPES[NUMPY[to]])
    out: Array = np.where(high, DTYPES[NUMPY[to]].type(info.max), np.where(low, DTYPES[NUMPY[to]].type(info.min), whole))
    return out


def _tf32(a: Array, mode: str) -> Array:
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
        return _tf32(wide, mode)
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
        return _narrow(wide, mode)
    exact = wide.astype(np.longdouble)
    nearest = exact.astype(np.float32)
    return _step(nearest, (exact - nearest).astype(np.float64), mode)


# ---- fp8 ----
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
    table = _TABLES[kind[:4]]
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
    table = _TABLES[of[:4]]
    low, high = table[codes & 0xFF], table[codes >> 8]
    if relu:
        low, high = (np.where(v > 0, v, np.float32(0)) for v in (low, high))
    return pack2(low.astype(np.float16).view(np.int16), high.astype(np.float16).view(np.int16))
