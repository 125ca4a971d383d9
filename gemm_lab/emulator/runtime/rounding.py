"""Rounding that NumPy has not: fused multiply-add with one rounding, directed rounding."""

from __future__ import annotations

import numpy as np

from gemm_lab.emulator.runtime.arrays import Array

__all__ = [
    "directed",
    "directed_fma",
    "exact_fma32",
    "exact_fma64",
    "narrow",
    "round_step",
]


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


def round_step(nearest: Array, error: Array, mode: str) -> Array:
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


def narrow(wide: Array, mode: str) -> Array:
    """float64 to float32 in a direction."""
    nearest = wide.astype(np.float32)
    return round_step(nearest, wide - nearest.astype(np.float64), mode)


def directed(a: Array, b: Array, sign: str, mode: str) -> Array:
    """add, sub, mul, div rounded toward zero (rz), down (rm) or up (rp)."""
    if a.dtype == np.float32:
        x, y = a.astype(np.float64), b.astype(np.float64)
        if sign == "+":
            wide, error = _two_sum(x, y)
        elif sign == "-":
            wide, error = _two_sum(x, -y)
        elif sign == "*":
            wide, error = x * y, np.zeros(1)
        else:
            wide = x / y
            error = np.zeros(1)
        nearest = wide.astype(np.float32)
        gap = wide - nearest.astype(np.float64)
        return round_step(nearest, np.where(gap != 0, gap, error), mode)
    if sign in "+-":
        total, error = _two_sum(a, b if sign == "+" else -b)
        return round_step(total, error, mode)
    wide_a, wide_b = a.astype(np.longdouble), b.astype(np.longdouble)
    exact = wide_a * wide_b if sign == "*" else wide_a / wide_b
    nearest = exact.astype(np.float64)
    return round_step(nearest, (exact - nearest).astype(np.float64), mode)


def directed_fma(a: Array, b: Array, c: Array, mode: str) -> Array:
    """Fused multiply-add rounded in a direction."""
    if a.dtype == np.float32:
        p = a.astype(np.float64) * b.astype(np.float64)
        wide, error = _two_sum(p, c.astype(np.float64))
        nearest = wide.astype(np.float32)
        gap = wide - nearest.astype(np.float64)
        return round_step(nearest, np.where(gap != 0, gap, error), mode)
    exact = a.astype(np.longdouble) * b.astype(np.longdouble) + c.astype(np.longdouble)
    near = exact.astype(np.float64)
    return round_step(near, (exact - near).astype(np.float64), mode)
