"""The right answer in float64, and how far a kernel may be from it.

The bound of an element follows the arithmetic (Higham and Mary, "A new approach to probabilistic
rounding error analysis", 2019): K rounded additions of unit roundoff u, whose errors are
independent, end about u * |partial sum| * sqrt(K) away. With S = sum of the products and
Q = sum of their squares, the partial sums grow like i * S/K in the mean and sqrt(i * Q/K) by
chance, which gives u * sqrt(K * (S^2 / 3 + Q / 2)); sqrt(K * Q) is never under |A||B|.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from gemm_lab.core.dtypes import DType, ScalarType
from gemm_lab.core.problem import GemmProblem
from gemm_lab.variants import parse_epilogue

__all__ = ["SIGMAS", "Reference", "accumulator_roundoff", "reference", "tolerance_reason"]

Array = Any

# Standard deviations of slack: one of 10^15 random elements would pass it.
SIGMAS = 8.0
# Tensor cores cut off instead of rounding as they add: some bits less than fp32 over a long sum.
_TENSOR_CORE_ROUNDOFF = 2.0**-20
# The fp8 pipeline of Hopper keeps 13 fraction bits between its own promotions.
_FP8_ROUNDOFF = 2.0**-13


@dataclass(frozen=True, kw_only=True)
class Reference:
    """Expected values and bounds of a block of rows, both float64 [batch, rows, n]."""

    expected: Array
    bound: Array


def accumulator_roundoff(dtype: DType) -> float:
    """Unit roundoff of one addition into the accumulator, as the arithmetic allows it."""
    if dtype.accumulator.name == "int32":
        return 0.0
    if dtype.name in ("fp32", "fp32x3"):
        return dtype.accumulator.unit_roundoff
    return _FP8_ROUNDOFF if dtype.name.startswith("fp8") else _TENSOR_CORE_ROUNDOFF


def tolerance_reason(problem: GemmProblem) -> str:
    """One line that says where the bound comes from."""
    k = problem.shape.k
    u = accumulator_roundoff(problem.dtype)
    out = problem.out.unit_roundoff
    return (
        f"{SIGMAS:g} sigma of {k} additions at u = {u:.1e} ({problem.dtype.name}) by |A||B|, "
        f"and output rounding {out:.1e} ({problem.out.name})"
    )


def reference(
    problem: GemmProblem, a: Array, b: Array, c: Array | None, bias: Array | None, *, row0: int = 0
) -> Reference:
    """Expected values and bounds for rows row0 and up.

    Args:
        a: float64 [batch, rows, k], already the wanted rows; b: float64 [batch, k, n].
        c: the old C, float64 [batch, rows, n], or None when beta is 0 and the epilogue has no c.
        bias: float64 [n] or None.
        row0: index of the first row, for epilogues that read `row`.

    NumPy and CuPy arrays work alike.
    """
    xp = namespace(a)
    dtype, k = problem.dtype, problem.shape.k
    alpha, beta = problem.alpha, problem.beta
    if alpha == 0:  # BLAS: A and B are not read
        shape = (a.shape[0], a.shape[1], b.shape[2])
        total = xp.zeros(shape)
        squares = xp.zeros(shape)
    else:
        total = a @ b
        squares = (a * a) @ (b * b)
    u_acc = accumulator_roundoff(dtype)
    # Two roundings an operand where the multiplier sees fewer bits than are stored.
    u_math = dtype.math_roundoff if dtype.math_roundoff > dtype.storage.unit_roundoff else 0.0
    u_compute = 2.0**-53 if dtype.compute == "double" else 2.0**-24
    spread = xp.sqrt(k * (total * total / 3 + squares / 2) + squares)
    x = alpha * total
    error = SIGMAS * abs(alpha) * (u_acc * spread + u_math * xp.sqrt(2 * squares))
    error += 4 * u_compute * xp.abs(x)
    if beta != 0:
        assert c is not None
        x = x + beta * c
        error = error + 4 * u_compute * (xp.abs(beta * c) + xp.abs(x))
    expected, error = _through_epilogue(problem, x, error, c, bias, row0, u_compute)
    bound = error + _output_roundoff(problem.out, expected)
    # A non-finite element is compared by place, not by distance.
    return Reference(expected=expected, bound=xp.where(xp.isfinite(expected), bound, 0.0))


def _output_roundoff(out: ScalarType, expected: Array) -> Array:
    xp = namespace(expected)
    if out.unit_roundoff == 0:  # rounded to the nearest integer
        return xp.full(expected.shape, 0.5 + 1e-9)
    smallest = {"fp32": 2.0**-149, "fp16": 2.0**-24, "bf16": 2.0**-133, "fp8_e4m3": 2.0**-9}
    # A flush or a rounding among denormals: one step of the smallest normal's unit.
    return out.unit_roundoff * xp.abs(expected) * (1 + 2.0**-10) + smallest[out.name]


def _through_epilogue(
    problem: GemmProblem,
    x: Array,
    error: Array,
    c: Array | None,
    bias: Array | None,
    row0: int,
    u_compute: float,
) -> tuple[Array, Array]:
    """Value and error behind bias and epilogue: the error is what the expression does to x +- e."""
    xp = namespace(x)
    parsed = parse_epilogue(problem.epilogue) if problem.epilogue else None
    if bias is not None and not (parsed and "bias" in parsed.names):
        x = x + bias
        error = error + 2 * u_compute * (xp.abs(x) + xp.abs(bias))
    if parsed is None:
        return x, error
    rows = xp.arange(row0, row0 + x.shape[1], dtype=float)[None, :, None]
    cols = xp.arange(x.shape[2], dtype=float)[None, None, :]
    values = {"x": x, "c": c, "bias": bias, "row": rows, "col": cols}
    y = parsed(values) + xp.zeros_like(x)
    up = parsed({**values, "x": x + error}) + xp.zeros_like(x)
    down = parsed({**values, "x": x - error}) + xp.zeros_like(x)
    moved = xp.maximum(xp.abs(up - y), xp.abs(down - y))
    # The expression itself is evaluated in float: some roundings of its largest term.
    scale = xp.abs(y) + xp.abs(x) + (xp.abs(bias) if bias is not None else 0.0)
    if "c" in parsed.names and c is not None:
        scale = scale + xp.abs(c)
    return y, xp.where(xp.isfinite(moved), moved, 0.0) + 16 * u_compute * scale


def namespace(array: Array) -> Any:
    """numpy or cupy, whichever the array is of."""
    return sys.modules[type(array).__module__.partition(".")[0]]
