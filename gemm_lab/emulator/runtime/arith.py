"""Arithmetic that NumPy has not, or has with another meaning than PTX."""

from __future__ import annotations

import numpy as np

from gemm_lab.emulator.runtime.arrays import DTYPES, Array

__all__ = [
    "bf16_to_f32",
    "bfe",
    "bfi",
    "bfind",
    "brev",
    "clz",
    "dp2a",
    "dp4a",
    "exact_fma32",
    "exact_fma64",
    "f32_to_bf16",
    "fma16",
    "fma_bf16",
    "ftz",
    "int_div",
    "int_rem",
    "lop3",
    "mul_hi",
    "pack2",
    "popc",
    "prmt",
    "saturate_int",
    "shf",
    "shift",
    "unpack2",
]

TINY32 = np.float32(np.finfo(np.float32).tiny)


def shift(a: Array, by: Array, kind: str) -> Array:
    """shl, shr of signed or unsigned values: amounts clamp at the width, as PTX does."""
    bits = a.dtype.itemsize * 8
    amount = by.astype(np.int64) & 0xFFFFFFFF
    over = amount >= bits
    safe = np.minimum(amount, bits - 1).astype(a.dtype)
    if kind == "shl":
        result = np.where(over, np.zeros((), a.dtype), a << safe)
    elif a.dtype.kind == "i":
        result = a >> safe
    else:
        result = np.where(over, np.zeros((), a.dtype), a >> safe)
    out: Array = result.astype(a.dtype, copy=False)
    return out


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
    return high.view(a.dtype)


def popc(a: Array) -> Array:
    """Number of set bits, int32."""
    u = a.view(DTYPES[f"u{a.dtype.itemsize * 8}"])
    return np.bitwise_count(u).astype(np.int32) if hasattr(np, "bitwise_count") else _popc(u)


def _popc(u: Array) -> Array:
    table = np.array([bin(i).count("1") for i in range(256)], dtype=np.int32)
    data = np.ascontiguousarray(u)[..., None].view(np.uint8)
    out: Array = table[data].sum(axis=-1).astype(np.int32)
    return out


def clz(a: Array) -> Array:
    """Leading zero bits, int32."""
    bits = a.dtype.itemsize * 8
    u = a.view(DTYPES[f"u{bits}"]).copy()
    step = 1
    while step < bits:
        u |= u >> u.dtype.type(step)
        step *= 2
    out: Array = (bits - popc(u)).astype(np.int32)
    return out


def bfind(a: Array, shiftamt: bool) -> Array:
    """Position of the highest bit that differs from the sign, -1 if none."""
    u = np.where(a < 0, ~a, a) if a.dtype.kind == "i" else a
    bits = a.dtype.itemsize * 8
    zeros = clz(u)
    result = zeros if shiftamt else bits - 1 - zeros
    out: Array = np.where(zeros == bits, -1, result).astype(np.int32)
    return out


def brev(a: Array) -> Array:
    """Bits in reverse order."""
    bits = a.dtype.itemsize * 8
    u = a.view(DTYPES[f"u{bits}"])
    t = u.dtype.type
    for step, mask in ((1, 0x5555555555555555), (2, 0x3333333333333333), (4, 0x0F0F0F0F0F0F0F0F)):
        m = t(mask & ((1 << bits) - 1))
        u = ((u >> t(step)) & m) | ((u & m) << t(step))
    return u.byteswap().view(a.dtype)


def bfe(a: Array, pos: Array, length: Array) -> Array:
    """Bit field extract; signed types extend the field's top bit."""
    bits = a.dtype.itemsize * 8
    p = pos.astype(np.int64) & 0xFF
    n = length.astype(np.int64) & 0xFF
    if a.dtype.kind == "u":
        moved = shift(a, p, "shr")
        keep = np.where(n >= bits, -1, (np.int64(1) << np.minimum(n, 62)) - 1)
        if bits == 64:
            keep = np.where(n == 63, np.int64(0x7FFFFFFFFFFFFFFF), keep)
        out: Array = moved & keep.astype(a.dtype)
        return out
    top = np.minimum(p + n - 1, bits - 1)
    sign = shift(a, np.maximum(top, 0), "shr") & a.dtype.type(1)
    moved = shift(a, p, "shr")
    keep = np.where(n >= bits, np.int64(-1), (np.int64(1) << np.minimum(n, 62)) - 1).astype(a.dtype)
    filled = np.where(sign != 0, moved | ~keep, moved & keep)
    out = np.where(n == 0, 0, filled).astype(a.dtype)
    return out


def bfi(a: Array, b: Array, pos: Array, length: Array) -> Array:
    """Bit field insert of a into b."""
    bits = a.dtype.itemsize * 8
    p = (pos.astype(np.int64) & 0xFF).astype(np.uint32)
    n = np.minimum(length.astype(np.int64) & 0xFF, bits)
    u = DTYPES[f"u{bits}"]
    ones = np.where(n >= 64, np.uint64(0xFFFFFFFFFFFFFFFF), (np.uint64(1) << np.minimum(n, 63).astype(np.uint64)) - np.uint64(1))
    mask = shift(ones.astype(u), p, "shl")
    out: Array = ((b.view(u) & ~mask) | (shift(a.view(u), p, "shl") & mask)).view(b.dtype)
    return out


def lop3(a: Array, b: Array, c: Array, table: int) -> Array:
    """Any bitwise function of three values, given by its truth table."""
    result: Array | None = None
    for row in range(8):
        if table >> row & 1:
            term = (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)
            result = term if result is None else result | term
    return np.zeros_like(a & b & c) if result is None else result


def prmt(a: Array, b: Array, selector: Array) -> Array:
    """Byte permute, default mode: a nibble picks a byte of {b, a}; its top bit spreads the sign."""
    both = (a.astype(np.int64) & 0xFFFFFFFF) | (b.astype(np.int64) << 32)
    sel = selector.astype(np.int64)
    result = np.zeros(np.broadcast_shapes(a.shape, b.shape, selector.shape), dtype=np.int64)
    for at in range(4):
        nibble = (sel >> (4 * at)) & 15
        byte = (both >> (8 * (nibble & 7))) & 0xFF
        byte = np.where(nibble & 8, np.where(byte & 0x80, 0xFF, 0), byte)
        result |= byte << (8 * at)
    return result.astype(np.uint32).view(np.int32)


def shf(a: Array, b: Array, c: Array, left: bool, clamp: bool) -> Array:
    """Funnel shift of {b, a}: the upper word for left, the lower for right."""
    low = a.view(np.uint32).astype(np.uint64)
    both = (b.view(np.uint32).astype(np.uint64) << np.uint64(32)) | low
    amount = c.view(np.uint32).astype(np.uint64)
    amount = np.minimum(amount, np.uint64(32)) if clamp else amount & np.uint64(31)
    moved = (both << amount) >> np.uint64(32) if left else both >> amount
    out: Array = (moved & np.uint64(0xFFFFFFFF)).astype(np.uint32).view(np.int32)
    return out


def _bytes_of(a: Array, signed: bool, count: int = 4) -> list[Array]:
    parts = []
    for at in range(count):
        byte = (a >> (8 * at)) & 0xFF
        parts.append(np.where(byte >= 128, byte - 256, byte) if signed else byte)
    return parts


def dp4a(a: Array, b: Array, c: Array, signed_a: bool, signed_b: bool) -> Array:
    """Four products of bytes added to c."""
    total = c
    for x, y in zip(_bytes_of(a, signed_a), _bytes_of(b, signed_b), strict=True):
        total = total + x * y
    return total


def dp2a(a: Array, b: Array, c: Array, signed_a: bool, signed_b: bool, high: bool) -> Array:
    """Two products of 16-bit halves of a and bytes of b added to c."""
    total = c
    parts = _bytes_of(b, signed_b)[2 if high else 0 :][:2]
    for at, byte in enumerate(parts):
        half = (a >> (16 * at)) & 0xFFFF
        half = np.where(half >= 32768, half - 65536, half) if signed_a else half
        total = total + half * byte
    return total


def saturate_int(a: Array, dtype: str) -> Array:
    """A wider integer clamped to a type's range."""
    info = np.iinfo(DTYPES[dtype])
    out: Array = np.clip(a, info.min, info.max).astype(DTYPES[dtype])
    return out


def ftz(a: Array) -> Array:
    """Subnormals to zero, sign kept."""
    small = np.abs(a) < TINY32
    return np.where(small, np.copysign(np.float32(0), a), a) if small.any() else a


# ---- 16-bit floats ----
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


# ---- fused multiply-add with one rounding ----
def exact_fma32(a: Array, b: Array, c: Array) -> Array:
    """float32 a * b + c rounded once.

    The product is exact in float64. Where the float64 sum lies half-way between two float32, or
    is subnormal there, its rounding error decides: the sum is moved one step toward it.
    """
    p = a.astype(np.float64) * b.astype(np.float64)
    z = c.astype(np.float64)
    s = p + z
    low = s.view(np.int64) & 0x1FFFFFFF
    tie = low == 0x10000000
    tiny = np.abs(s) < 2.4e-38
    if tie.any() or tiny.any():
        v = s - p
        error = (p - (s - v)) + (z - v)
        away = (error > 0) == (s > 0)
        moved = s.view(np.int64) + np.where(away, 1, -1)
        fix = (error != 0) & np.isfinite(s) & (tie | (tiny & ((s.view(np.int64) & 1) == 0)))
        s = np.where(fix, moved.view(np.float64), s)
    out: Array = s.astype(np.float32)
    return out


def _two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """a * b as an unevaluated sum (Dekker, with Veltkamp's splitting)."""
    p = a * b
    factor = 134217729.0
    ah = a * factor
    ah = ah - (ah - a)
    bh = b * factor
    bh = bh - (bh - b)
    al, bl = a - ah, b - bh
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    s = a + b
    v = s - a
    return s, (a - (s - v)) + (b - v)


def exact_fma64(a: Array, b: Array, c: Array) -> Array:
    """float64 a * b + c rounded once (Boldo and Melquiond, by rounding to odd).

    Falls back on two roundings where the splitting would overflow or underflow.
    """
    p, e = _two_product(a, b)
    u, v = _two_sum(c, e)
    t, w = _two_sum(p, u)
    q, r = _two_sum(v, w)
    bits = q.view(np.int64)
    even = (bits & 1) == 0
    step = np.where((r > 0) == (q > 0), 1, -1)
    odd = np.where((r != 0) & even & (q != 0), bits + step, bits).view(np.float64)
    result = t + odd
    size = np.abs(p)
    safe = (size < 1e300) & (size > 1e-280) & np.isfinite(result) & (np.abs(c) < 1e300)
    safe &= (np.abs(a) < 1e150) & (np.abs(b) < 1e150)
    out: Array = np.where(safe, result, a * b + c)
    return out
