"""What a call asks for: arithmetic and shape from arrays or words, or a clear refusal."""

from __future__ import annotations

import math
from typing import Any

from gemm_lab.core.dtypes import DTYPES, DType
from gemm_lab.core.dtypes import dtype as dtype_named
from gemm_lab.core.problem import Shape
from gemm_lab.errors import UsageError
from gemm_lab.gpu.arrays import ArrayView

__all__ = ["arithmetic_of", "as_shape", "finite", "home", "shape_of"]


def finite(name: str, value: float) -> float:
    """The number; UsageError, naming it, when it is none, a NaN or infinite."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise UsageError(f"{name} = {value!r} is no number", hint=f"pass a real {name}") from None
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise UsageError(f"{name} = {value} is not finite", hint=f"pass a finite {name}")
    return number


def home(view_: ArrayView) -> str:
    """Where an array lies, in words."""
    return "the host" if view_.device is None else f"GPU {view_.device}"


def arithmetic_of(a: ArrayView, b: ArrayView, asked: str | None) -> DType:
    """What multiplies these arrays: `asked`, else what their element type means.

    UsageError: they lie apart, differ in type, or hold another type than `asked` needs.
    """
    if a.device != b.device:
        raise UsageError(f"a lies on {home(a)} and b on {home(b)}", hint="put them in one place")
    if a.scalar != b.scalar:
        raise UsageError(
            f"a holds {a.scalar} and b {b.scalar}", hint="convert one to the other's type"
        )
    if asked is None:
        if a.scalar in DTYPES:
            return dtype_named(a.scalar)
        raise UsageError(
            f"no kernel multiplies {a.scalar}",
            hint="fp32, fp16, bf16, int8 arrays, or uint8 ones with dtype='fp8_e4m3'",
        )
    arithmetic = dtype_named(asked)
    carriers = {arithmetic.storage.name, arithmetic.storage.numpy_name}
    if a.scalar not in carriers:
        raise UsageError(
            f"dtype {asked} needs {arithmetic.storage.name} arrays, not {a.scalar}",
            hint=f"convert them, or leave dtype out for {a.scalar}",
        )
    return arithmetic


def shape_of(a: ArrayView, b: ArrayView) -> Shape:
    """Of the product of a [batch, m, k] and b [batch, k, n]; a batch of 1 goes with any.

    UsageError when they do not fit.
    """
    if a.shape[2] != b.shape[1]:
        raise UsageError(
            f"a is {a.shape[1:]} and b {b.shape[1:]}: {a.shape[2]} columns do not meet "
            f"{b.shape[1]} rows",
            hint="a is [m, k] and b [k, n]",
        )
    batches = {a.shape[0], b.shape[0]}
    if len(batches - {1}) > 1:
        raise UsageError(
            f"batches of {a.shape[0]} and {b.shape[0]} do not go together",
            hint="equal batches, or one of 1",
        )
    batch = next(iter(batches - {1}), 1)
    return Shape(m=a.shape[1], n=b.shape[2], k=a.shape[2], batch=batch)


def as_shape(shape: Any) -> Shape:
    """A Shape from an int (a square), (m, n, k), (m, n, k, batch) or a Shape."""
    if isinstance(shape, Shape):
        return shape
    if isinstance(shape, int):
        return Shape(m=shape, n=shape, k=shape)
    try:
        sizes = [int(x) for x in shape]
    except (TypeError, ValueError):
        sizes = []
    if len(sizes) not in (3, 4):
        raise UsageError(
            f"shape {shape!r} cannot be read", hint="an int, (m, n, k) or (m, n, k, batch)"
        )
    m, n, k, *batch = sizes
    return Shape(m=m, n=n, k=k, batch=batch[0] if batch else 1)
