"""What cuBLAS calls each arithmetic of the lab, and row-major problems in its column-major speech.

Tables: cuBLAS documentation, cublasGemmEx and cublasLtMatmul, "supported types".
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Literal

from gemm_lab.core.problem import GemmProblem, Strides

__all__ = ["BlasTypes", "ColumnMajor", "LtEpilogue", "blas_types", "column_major", "lt_epilogue"]

# cudaDataType
DATA_TYPES = {"fp32": 0, "fp16": 2, "int8": 3, "int32": 10, "bf16": 14, "fp8_e4m3": 28}
# cublasComputeType_t
COMPUTE_TYPES = {
    "COMPUTE_32F": 68,
    "COMPUTE_32F_PEDANTIC": 69,
    "COMPUTE_32I": 72,
    "COMPUTE_32F_FAST_TF32": 77,
}
OP_N, OP_T = 0, 1
_INT_MAX = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class BlasTypes:
    """Types of one call: `scale` is that of alpha and beta; `gemm_ex`, `lt`: who offers it."""

    operand: int
    out: int
    scale: Literal["fp32", "int32"]
    compute: str
    lt_compute: str
    gemm_ex: bool = True
    lt: bool = True

    @property
    def compute_number(self) -> int:
        """cublasComputeType_t for gemmEx."""
        return COMPUTE_TYPES[self.compute]

    @property
    def lt_compute_number(self) -> int:
        """cublasComputeType_t for cuBLASLt."""
        return COMPUTE_TYPES[self.lt_compute]

    def host_scalar(self, value: float) -> ctypes.c_int32 | ctypes.c_float:
        """alpha or beta in host memory, as this call reads it."""
        return ctypes.c_int32(int(value)) if self.scale == "int32" else ctypes.c_float(value)


def blas_types(problem: GemmProblem) -> BlasTypes | None:
    """Types for the same arithmetic, or None where cuBLAS has none.

    fp32 and fp32x3 are held against true fp32: pedantic forbids every shortcut, and cuBLASLt
    takes TF32 only when it is asked for by name.
    """
    name = problem.dtype.name
    out = DATA_TYPES[problem.out.name]
    operand = DATA_TYPES[problem.dtype.storage.name]
    compute = "COMPUTE_32F"
    lt_compute = compute
    if name in ("fp32", "fp32x3"):
        compute = "COMPUTE_32F_PEDANTIC"
    elif name == "tf32":
        compute = lt_compute = "COMPUTE_32F_FAST_TF32"
    elif name == "int8" and problem.out.name == "int32":
        # alpha and beta are integers there.
        if not (float(problem.alpha).is_integer() and float(problem.beta).is_integer()):
            return None
        return BlasTypes(
            operand=operand,
            out=out,
            scale="int32",
            compute="COMPUTE_32I",
            lt_compute="COMPUTE_32I",
        )
    return BlasTypes(
        operand=operand,
        out=out,
        scale="fp32",
        compute=compute,
        lt_compute=lt_compute,
        gemm_ex=name != "fp8_e4m3",
        lt=name != "int8",
    )


@dataclass(frozen=True, kw_only=True)
class ColumnMajor:
    """C^T = B^T A^T: the first operand is our B, the second our A, m and n change places.

    `first_rows` x `first_columns` is our B as a column-major matrix in memory, and so on.
    """

    m: int
    n: int
    k: int
    first_op: int
    second_op: int
    first_rows: int
    first_columns: int
    second_rows: int
    second_columns: int
    first_ld: int
    second_ld: int
    ldc: int
    first_stride: int
    second_stride: int
    stride_c: int
    batch: int

    @property
    def fits_int(self) -> bool:
        """Whether gemmEx's 32-bit arguments can carry it."""
        return max(self.m, self.n, self.k, self.first_ld, self.second_ld, self.ldc) <= _INT_MAX


def column_major(problem: GemmProblem, strides: Strides) -> ColumnMajor:
    """The same product as cuBLAS reads it."""
    shape = problem.shape
    a_plain, b_plain = problem.layout[0] == "n", problem.layout[1] == "n"
    return ColumnMajor(
        m=shape.n,
        n=shape.m,
        k=shape.k,
        first_op=OP_N if b_plain else OP_T,
        second_op=OP_N if a_plain else OP_T,
        first_rows=shape.n if b_plain else shape.k,
        first_columns=shape.k if b_plain else shape.n,
        second_rows=shape.k if a_plain else shape.m,
        second_columns=shape.m if a_plain else shape.k,
        first_ld=strides.ldb,
        second_ld=strides.lda,
        ldc=strides.ldc,
        first_stride=strides.stride_b,
        second_stride=strides.stride_a,
        stride_c=strides.stride_c,
        batch=shape.batch,
    )


@dataclass(frozen=True, kw_only=True)
class LtEpilogue:
    """cublasLtEpilogue_t, and how it differs from ours, if it does."""

    number: int
    bias: bool
    note: str = ""


_PLAIN, _RELU, _BIAS, _GELU = 1, 2, 4, 32


def lt_epilogue(problem: GemmProblem) -> LtEpilogue | None:
    """cuBLASLt's epilogue for ours, or None where it has none."""
    text = (problem.epilogue or "x").replace(" ", "")
    named = {"x+bias": "x", "relu(x+bias)": "relu", "gelu(x+bias)": "gelu"}
    text = named.get(text, text).removesuffix("(x)")
    activation = {"x": 0, "relu": _RELU, "gelu": _GELU}.get(text)
    if activation is None or (problem.bias and problem.out.name == "int32"):
        return None
    if activation and problem.out.name == "int32":
        return None
    number = activation | (_BIAS if problem.bias else 0)
    return LtEpilogue(
        number=number or _PLAIN,
        bias=problem.bias,
        note="its gelu is the tanh approximation" if activation == _GELU else "",
    )
