"""Bit operations with the meaning that PTX gives them."""

from __future__ import annotations

import numpy as np

from gemm_lab.emulator.runtime.arrays import DTYPES, Array

__all__ = [
    "bfe",
    "bfi",
    "bfind",
    "brev",
    "clz",
    "dp2a",
    "dp4a",
    "lop3",
    "popc",
    "prmt",
    "shf",
    "shift",
]


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
    result: Array = np.where(n == 0, 0, filled).astype(a.dtype)
    return result


def bfi(a: Array, b: Array, pos: Array, length: Array) -> Array:
    """Bit field insert of a into b."""
    bits = a.dtype.itemsize * 8
    p = (pos.astype(np.int64) & 0xFF).astype(np.uint32)
    n = np.minimum(length.astype(np.int64) & 0xFF, bits)
    u = DTYPES[f"u{bits}"]
    ones = np.where(
        n >= 64,
        np.uint64(0xFFFFFFFFFFFFFFFF),
        (np.uint64(1) << np.minimum(n, 63).astype(np.uint64)) - np.uint64(1),
    )
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
