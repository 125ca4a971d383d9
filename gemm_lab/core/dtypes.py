"""Arithmetic names as the user types them, and what they mean inside.

A `DType` names the arithmetic (`tf32`); it splits into the type that is stored, the precision of
the products, the accumulator and the default output. Tolerances, peaks and the cuBLAS compute type
all follow from these facts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from gemm_lab.errors import UsageError

if TYPE_CHECKING:
    import numpy as np

__all__ = ["DTYPES", "LAYOUTS", "SCALARS", "DType", "Layout", "ScalarType", "dtype", "scalar"]

Layout = Literal["nn", "nt", "tn", "tt"]
LAYOUTS: tuple[Layout, ...] = ("nn", "nt", "tn", "tt")


@dataclass(frozen=True, kw_only=True)
class ScalarType:
    """A type of one element in memory.

    `unit_roundoff` is half the distance from 1 to the next number (0 for integers);
    `numpy_name` is how the host carries it (fp8 as uint8, bf16 by ml_dtypes).
    """

    name: str
    c_type: str
    size_bytes: int
    unit_roundoff: float
    numpy_name: str
    header: str | None = None

    def numpy(self) -> np.dtype[np.generic]:
        """The NumPy dtype that carries it on the host."""
        import numpy

        if self.name != "bf16":
            return numpy.dtype(self.numpy_name)
        import ml_dtypes

        bfloat16: np.dtype[np.generic] = numpy.dtype(ml_dtypes.bfloat16)
        return bfloat16


SCALARS: dict[str, ScalarType] = {
    s.name: s
    for s in (
        ScalarType(
            name="fp32", c_type="float", size_bytes=4, unit_roundoff=2.0**-24, numpy_name="float32"
        ),
        ScalarType(
            name="fp16",
            c_type="__half",
            size_bytes=2,
            unit_roundoff=2.0**-11,
            numpy_name="float16",
            header="cuda_fp16.h",
        ),
        ScalarType(
            name="bf16",
            c_type="__nv_bfloat16",
            size_bytes=2,
            unit_roundoff=2.0**-8,
            numpy_name="bfloat16",
            header="cuda_bf16.h",
        ),
        ScalarType(
            name="fp8_e4m3",
            c_type="__nv_fp8_e4m3",
            size_bytes=1,
            unit_roundoff=2.0**-4,
            numpy_name="uint8",
            header="cuda_fp8.h",
        ),
        ScalarType(
            name="int8", c_type="signed char", size_bytes=1, unit_roundoff=0.0, numpy_name="int8"
        ),
        ScalarType(name="int32", c_type="int", size_bytes=4, unit_roundoff=0.0, numpy_name="int32"),
    )
}


@dataclass(frozen=True, kw_only=True)
class DType:
    """The arithmetic of a product.

    `math_roundoff` is the unit roundoff of an operand as the multiplier sees it;
    `compute` is the C type in which alpha, beta and the epilogue are evaluated
    (double for int8: an int32 accumulator passes through it exactly).
    """

    name: str
    storage: ScalarType
    math_roundoff: float
    accumulator: ScalarType
    default_out: ScalarType
    outs: tuple[ScalarType, ...]
    compute: Literal["float", "double"] = "float"

    def out(self, name: str | None) -> ScalarType:
        """The output type of that name, or the default; UsageError if it cannot be had."""
        if name is None:
            return self.default_out
        for candidate in self.outs:
            if candidate.name == name:
                return candidate
        raise UsageError(
            f"dtype {self.name} cannot write {name}",
            hint=f"outputs of {self.name}: {', '.join(o.name for o in self.outs)}",
        )


def _dtype(
    name: str,
    storage: str,
    math_roundoff: float,
    outs: tuple[str, ...],
    *,
    accumulator: str = "fp32",
    compute: Literal["float", "double"] = "float",
) -> DType:
    return DType(
        name=name,
        storage=SCALARS[storage],
        math_roundoff=math_roundoff,
        accumulator=SCALARS[accumulator],
        default_out=SCALARS[outs[0]],
        outs=tuple(SCALARS[o] for o in outs),
        compute=compute,
    )


DTYPES: dict[str, DType] = {
    d.name: d
    for d in (
        _dtype("fp32", "fp32", 2.0**-24, ("fp32",)),
        _dtype("tf32", "fp32", 2.0**-11, ("fp32",)),
        _dtype("fp32x3", "fp32", 2.0**-22, ("fp32",)),
        _dtype("fp16", "fp16", 2.0**-11, ("fp16", "fp32")),
        _dtype("bf16", "bf16", 2.0**-8, ("bf16", "fp32")),
        _dtype("fp8_e4m3", "fp8_e4m3", 2.0**-4, ("bf16", "fp16", "fp32")),
        _dtype("int8", "int8", 0.0, ("int32", "fp32"), accumulator="int32", compute="double"),
    )
}


def dtype(name: str) -> DType:
    """The arithmetic of that name; UsageError with the known names otherwise."""
    try:
        return DTYPES[name]
    except KeyError:
        raise UsageError(f"unknown dtype {name!r}", hint=f"known: {', '.join(DTYPES)}") from None


def scalar(name: str) -> ScalarType:
    """The element type of that name; UsageError with the known names otherwise."""
    try:
        return SCALARS[name]
    except KeyError:
        raise UsageError(
            f"unknown element type {name!r}", hint=f"known: {', '.join(SCALARS)}"
        ) from None
