"""cuBLASLt through nvmath-python's bindings: descriptors, heuristics, the call."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gemm_lab.gpu.blas_types import BlasTypes, ColumnMajor, LtEpilogue

__all__ = ["LtAddresses", "LtMatmul", "LtQuestion", "lt_matmuls"]

WORKSPACE_BYTES = 32 * 2**20


@dataclass(frozen=True, kw_only=True)
class LtAddresses:
    """Byte addresses of one call: our B, our A, C, and the bias (0 without)."""

    first: int
    second: int
    c: int
    bias: int = 0


@dataclass(frozen=True, kw_only=True)
class LtQuestion:
    """One product for cuBLASLt. `fast_accumulation` concerns fp8 alone."""

    types: BlasTypes
    shape: ColumnMajor
    alpha: float
    beta: float
    epilogue: LtEpilogue
    bias_type: int
    fast_accumulation: bool = False


class LtMatmul:
    """One algorithm for one question; `run(addresses, stream)` starts it."""

    def __init__(
        self,
        *,
        bindings: Any,
        descriptors: _Descriptors,
        question: LtQuestion,
        algorithm: Any,
        workspace: Any,
    ) -> None:
        self._lt = bindings
        self._descriptors = descriptors
        self._algorithm = algorithm
        self._workspace = workspace
        self._question = question
        self._alpha = question.types.host_scalar(question.alpha)
        self._beta = question.types.host_scalar(question.beta)
        self._scalars = (ctypes.addressof(self._alpha), ctypes.addressof(self._beta))

    def run(self, addresses: LtAddresses, stream: int) -> None:
        """Start the product on a stream handle."""
        d = self._descriptors
        if self._question.epilogue.bias:
            d.set_bias(addresses.bias)
        alpha, beta = self._scalars
        self._lt.matmul(
            d.handle,
            d.operation,
            alpha,
            addresses.first,
            d.first,
            addresses.second,
            d.second,
            beta,
            addresses.c,
            d.c,
            addresses.c,
            d.c,
            self._algorithm.ctypes.data,
            self._workspace.ptr,
            WORKSPACE_BYTES,
            stream,
        )


class _Descriptors:
    """cuBLASLt's objects for a question, destroyed with this one."""

    def __init__(self, bindings: Any, question: LtQuestion) -> None:
        lt, shape, types = bindings, question.shape, question.types
        self._lt = lt
        undo: list[tuple[Callable[[int], None], int]] = []
        weakref.finalize(self, _destroy, undo).atexit = False  # CUDA may be gone by then

        def keep(destroy: Callable[[int], None], made: int) -> int:
            undo.append((destroy, made))
            return made

        def layout(data_type: int, rows: int, columns: int, ld: int, stride: int) -> int:
            made = keep(
                lt.matrix_layout_destroy, lt.matrix_layout_create(data_type, rows, columns, ld)
            )
            if shape.batch > 1:
                attribute = lt.MatrixLayoutAttribute
                _set(
                    lt.matrix_layout_set_attribute,
                    made,
                    attribute.BATCH_COUNT,
                    ctypes.c_int32(shape.batch),
                )
                _set(
                    lt.matrix_layout_set_attribute,
                    made,
                    attribute.STRIDED_BATCH_OFFSET,
                    ctypes.c_int64(stride),
                )
            return made

        self.handle = keep(lt.destroy, lt.create())
        scale_type = 10 if types.scale == "int32" else 0
        self.operation = keep(
            lt.matmul_desc_destroy, lt.matmul_desc_create(types.lt_compute_number, scale_type)
        )
        self.first = layout(
            types.operand, shape.first_rows, shape.first_columns, shape.first_ld, shape.first_stride
        )
        self.second = layout(
            types.operand,
            shape.second_rows,
            shape.second_columns,
            shape.second_ld,
            shape.second_stride,
        )
        self.c = layout(types.out, shape.m, shape.n, shape.ldc, shape.stride_c)
        attribute = lt.MatmulDescAttribute
        self._describe(attribute.TRANSA, ctypes.c_int32(shape.first_op))
        self._describe(attribute.TRANSB, ctypes.c_int32(shape.second_op))
        self._describe(attribute.EPILOGUE, ctypes.c_uint32(question.epilogue.number))
        if question.epilogue.bias:
            self._describe(attribute.BIAS_DATA_TYPE, ctypes.c_int32(question.bias_type))
        if question.fast_accumulation:
            self._describe(attribute.FAST_ACCUM, ctypes.c_int8(1))

    def set_bias(self, address: int) -> None:
        """The bias travels in the descriptor, not in the call."""
        self._describe(self._lt.MatmulDescAttribute.BIAS_POINTER, ctypes.c_int64(address))

    def _describe(self, attribute: int, value: Any) -> None:
        _set(self._lt.matmul_desc_set_attribute, self.operation, attribute, value)


def _set(setter: Callable[[int, int, int, int], None], made: int, attr: int, value: Any) -> None:
    setter(made, int(attr), ctypes.addressof(value), ctypes.sizeof(value))


def _destroy(undo: list[tuple[Callable[[int], None], int]]) -> None:
    for destroy, made in reversed(undo):
        destroy(made)


def lt_matmuls(
    bindings: Any,
    question: LtQuestion,
    *,
    addresses: Sequence[LtAddresses],
    workspace: Any,
    count: int,
) -> list[LtMatmul]:
    """The first `count` algorithms of cuBLASLt's heuristics; none where it does not support it.

    `addresses` are all that will be run: their common alignment decides which kernels may.
    """
    lt = bindings
    descriptors = _Descriptors(lt, question)
    if question.epilogue.bias:
        descriptors.set_bias(addresses[0].bias)
    preference = lt.matmul_preference_create()
    try:
        attribute = lt.MatmulPreferenceAttribute
        setter = lt.matmul_preference_set_attribute
        _set(
            setter,
            preference,
            attribute.MAX_WORKSPACE_BYTES,
            ctypes.c_uint64(WORKSPACE_BYTES),
        )
        for name, values in (
            ("MIN_ALIGNMENT_A_BYTES", [a.first for a in addresses]),
            ("MIN_ALIGNMENT_B_BYTES", [a.second for a in addresses]),
            ("MIN_ALIGNMENT_C_BYTES", [a.c for a in addresses]),
            ("MIN_ALIGNMENT_D_BYTES", [a.c for a in addresses]),
        ):
            _set(setter, preference, attribute[name], ctypes.c_uint32(_alignment(values)))
        results = lt.MatmulHeuristicResult(count)
        found = ctypes.c_int32(0)
        lt.matmul_algo_get_heuristic(
            descriptors.handle,
            descriptors.operation,
            descriptors.first,
            descriptors.second,
            descriptors.c,
            descriptors.c,
            preference,
            count,
            results.ptr,
            ctypes.addressof(found),
        )
    except lt.cuBLASLtError:
        return []  # not supported, in cuBLASLt's words
    finally:
        lt.matmul_preference_destroy(preference)
    return [
        LtMatmul(
            bindings=lt,
            descriptors=descriptors,
            question=question,
            algorithm=_algorithm(results, index),
            workspace=workspace,
        )
        for index in range(found.value)
    ]


def _algorithm(results: Any, index: int) -> Any:
    import numpy

    # The algorithm is the first 64 bytes of a result, whatever the class around it is called.
    raw = (ctypes.c_uint64 * 8).from_address(results.ptr + index * results._data.itemsize)
    return numpy.array(raw, dtype=numpy.uint64)


def _alignment(addresses: Sequence[int]) -> int:
    """Largest power of two, at most 256, that divides every address."""
    together = 256
    for address in addresses:
        together |= address
    return together & -together
