"""The tensor maps of a launch plan: over the operands, or over copies of them in the workspace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from gemm_lab.core.dtypes import ScalarType
from gemm_lab.core.kernel import SWIZZLES, KernelSpec, TensorMapSpec, TunableValue
from gemm_lab.core.problem import Shape, Strides
from gemm_lab.variants.expressions import Expression
from gemm_lab.variants.variant import TensorMapDecl, Variant

__all__ = ["tensor_maps"]

Value = Callable[[Expression, str], TunableValue]


def tensor_maps(
    variant: Variant, spec: KernelSpec, shape: Shape, strides: Strides, value: Value
) -> dict[str, TensorMapSpec]:
    """Every map that the variant declares, by operand; `value` evaluates an expression of a key.

    Maps are three-dimensional: contiguous extent, rows, batch.
    """
    return {
        operand: _one(variant, spec, shape, strides, decl, value)
        for operand, decl in variant.tensor_maps.items()
    }


def _one(
    variant: Variant,
    spec: KernelSpec,
    shape: Shape,
    strides: Strides,
    decl: TensorMapDecl,
    value: Value,
) -> TensorMapSpec:
    key = f"tensor_maps.{decl.operand}"
    element = spec.out if decl.operand == "c" else spec.dtype.storage
    dims, strides_bytes = _of_operand(spec, shape, strides, decl.operand, element)
    offset_bytes = None
    source = decl.operand if decl.source is None else value(decl.source, f"{key}.source")
    if source == "workspace" and decl.workspace is not None:
        space = decl.workspace
        dims = tuple(int(value(e, f"{key}.dims")) for e in space.dims)
        strides_bytes = tuple(int(value(e, f"{key}.strides")) for e in space.strides)
        offset_bytes = int(value(space.offset, f"{key}.offset"))
    elif source != decl.operand:
        words = f"{decl.operand}, or workspace with its dims and strides"
        raise variant.fault(f"{key}.source", f"{source!r} is no source of this map: {words}")
    swizzle = value(decl.swizzle, f"{key}.swizzle")
    if swizzle not in SWIZZLES:
        known = ", ".join(SWIZZLES)
        raise variant.fault(f"{key}.swizzle", f"{swizzle!r} is no swizzle; known: {known}")
    box = [int(value(e, f"{key}.box")) for e in decl.box]
    return TensorMapSpec(
        operand=cast("Any", decl.operand),
        dtype=element,
        # A map has no empty axis; a sum over nothing loads nothing through it.
        dims=tuple(max(d, 1) for d in dims),
        strides_bytes=strides_bytes,
        box=(*box, *([1] * (3 - len(box)))),
        swizzle=cast("Any", swizzle),
        round_tf32=decl.operand in "ab" and spec.dtype.name == "tf32",
        workspace_offset_bytes=offset_bytes,
    )


def _of_operand(
    spec: KernelSpec, shape: Shape, strides: Strides, operand: str, element: ScalarType
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Dims in elements and strides in bytes of an operand as it is stored."""
    inner, outer, leading, batch_stride = {
        "a": (shape.k, shape.m, strides.lda, strides.stride_a),
        "b": (shape.n, shape.k, strides.ldb, strides.stride_b),
        "c": (shape.n, shape.m, strides.ldc, strides.stride_c),
    }[operand]
    if operand in "ab" and spec.layout["ab".index(operand)] == "t":
        inner, outer = outer, inner
    if batch_stride == 0 or shape.batch == 1:
        batch_stride = leading * outer
    size = element.size_bytes
    return (inner, outer, shape.batch), (leading * size, batch_stride * size)
