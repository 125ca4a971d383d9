"""Arithmetic on 16-bit floats, one or two to a register; bf16 travels as int16 bits."""

from __future__ import annotations

import numpy as np

from gemm_lab.emulator.runtime.arith import saturate
from gemm_lab.emulator.runtime.arrays import Array

__all__ = [
    "bf16_to_f32",
    "f32_to_bf16",
    "fma16",
    "fma_bf16",
    "half_op",
    "half_wide",
    "pack2",
    "unpack2",
]


def bf16_to_f32(a: Array) -> Array:
    """bf16 bits (int16) to float32, exactly."""
    return (a.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)


def f32_to_bf16(a: Array, mode: str = "rn") -> Array:
    """float32 to bf16 bits (int16), to nearest even or toward zero; NaN becomes 0x7fff."""
    u = np.ascontiguousarray(a).view(np.uint32)
    if mode == "rn":
        bias = ((u >> np.uint32(16)) & np.uint32(1)) + np.uint32(0x7FFF)
        u = u + bias
    out = (u >> np.uint32(16)).astype(np.uint16)
    nan = np.isnan(a)
    if nan.any():
        out = np.where(nan, np.uint16(0x7FFF), out)
    return out.view(np.int16)


def unpack2(a: Array) -> tuple[Array, Array]:
    """The low and high halves of 32-bit values, int16."""
    return a.astype(np.int16), (a >> 16).astype(np.int16)


def pack2(low: Array, high: Array) -> Array:
    """Two 16-bit halves to int32."""
    out: Array = (low.view(np.uint16).astype(np.int32)) | (high.astype(np.int32) << 16)
    return out


def fma16(a: Array, b: Array, c: Array) -> Array:
    """float16 a * b + c, rounded once: the product is exact in float64."""
    wide = a.astype(np.float64) * b.astype(np.float64) + c.astype(np.float64)
    out: Array = wide.astype(np.float16)
    return out


def fma_bf16(a: Array, b: Array, c: Array) -> Array:
    """bf16 bits: a * b + c, rounded once through an odd-rounded float32."""
    x, y, z = (bf16_to_f32(v).astype(np.float64) for v in (a, b, c))
    wide = x * y + z
    narrow = wide.astype(np.float32)
    back = narrow.astype(np.float64)
    bits = narrow.view(np.int32)
    even = (bits & 1) == 0
    away = np.abs(back) > np.abs(wide)
    odd = np.where(back == wide, bits, np.where(even, np.where(away, bits - 1, bits + 1), bits))
    odd = np.where(np.isfinite(narrow), odd, bits)
    return f32_to_bf16(odd.astype(np.int32).view(np.float32))


def half_wide(a: Array, kind: str) -> Array:
    """f16 or bf16 bits as float32."""
    return bf16_to_f32(a) if kind == "bf16" else a.view(np.float16).astype(np.float32)


def _half_narrow(a: Array, brain: bool) -> Array:
    return f32_to_bf16(a.astype(np.float32)) if brain else a.astype(np.float16).view(np.int16)


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
