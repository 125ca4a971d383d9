"""The closed vocabulary of kernel parameters: signature and packer read this one table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["DEFAULT_PARAMS", "PARAMS", "Param", "ParamKind"]

ParamKind = Literal["int", "int64", "compute", "pointer", "tensor_map"]


@dataclass(frozen=True, kw_only=True)
class Param:
    """A parameter: its kind, and how C declares it.

    `declaration` may use {in_t}, {out_t}, {compute_t}; these are filled by the renderer.
    """

    name: str
    kind: ParamKind
    declaration: str
    doc: str


def _param(name: str, kind: ParamKind, declaration: str, doc: str) -> Param:
    return Param(name=name, kind=kind, declaration=declaration, doc=doc)


_TENSOR_MAP = "const __grid_constant__ TensorMap {name}"

PARAMS: dict[str, Param] = {
    p.name: p
    for p in (
        _param("M", "int", "int M", "rows of C"),
        _param("N", "int", "int N", "columns of C"),
        _param("K", "int", "int K", "length of the sum"),
        _param("batch", "int", "int batch", "number of products"),
        _param("alpha", "compute", "{compute_t} alpha", "factor of A @ B"),
        _param("beta", "compute", "{compute_t} beta", "factor of the old C; 0 never reads it"),
        _param("A", "pointer", "const {in_t}* __restrict__ A", "first operand"),
        _param("lda", "int64", "long long lda", "elements between rows of A as stored"),
        _param("B", "pointer", "const {in_t}* __restrict__ B", "second operand"),
        _param("ldb", "int64", "long long ldb", "elements between rows of B as stored"),
        _param("C", "pointer", "{out_t}* __restrict__ C", "result"),
        _param("ldc", "int64", "long long ldc", "elements between rows of C"),
        _param("stride_a", "int64", "long long stride_a", "elements between matrices of A"),
        _param("stride_b", "int64", "long long stride_b", "elements between matrices of B"),
        _param("stride_c", "int64", "long long stride_c", "elements between matrices of C"),
        _param(
            "bias", "pointer", "const {out_t}* __restrict__ bias", "row vector of N, may be null"
        ),
        _param("workspace", "pointer", "unsigned char* __restrict__ workspace", "scratch memory"),
        _param("tma_a", "tensor_map", _TENSOR_MAP.format(name="tma_a"), "tensor map of A"),
        _param("tma_b", "tensor_map", _TENSOR_MAP.format(name="tma_b"), "tensor map of B"),
        _param("tma_c", "tensor_map", _TENSOR_MAP.format(name="tma_c"), "tensor map of C"),
        _param("scale_a", "pointer", "const float* __restrict__ scale_a", "scale of A, one float"),
        _param("scale_b", "pointer", "const float* __restrict__ scale_b", "scale of B, one float"),
    )
}

DEFAULT_PARAMS = ("M", "N", "K", "alpha", "A", "lda", "B", "ldb", "beta", "C", "ldc")
