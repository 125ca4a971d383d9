"""The question for automatic choice, from arrays that are there or from a problem alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gemm_lab.core.dtypes import LAYOUTS, Layout
from gemm_lab.core.kernel import TunableValue
from gemm_lab.core.problem import GemmProblem, Strides
from gemm_lab.gpu.array_view import ArrayView
from gemm_lab.lab.choice import Arrangement, ChoiceQuestion
from gemm_lab.lab.operands import lies_as
from gemm_lab.lab.trial import aligned_strides

__all__ = ["packed_arrangement", "question_of_arrays", "question_of_problem"]

_ALL = frozenset("abc")


def question_of_problem(
    problem: GemmProblem,
    *,
    layouts: Sequence[Layout],
    arch: str | None,
    device: str | None = None,
    sm_count: int | None = None,
    emulated: bool = False,
    tunables: Mapping[str, Any] | None = None,
) -> ChoiceQuestion:
    """For packed operands; `problem.layout` is not looked at."""
    return ChoiceQuestion(
        dtype=problem.dtype,
        out=problem.out,
        shape=problem.shape,
        arrangements=tuple(packed_arrangement(problem, layout) for layout in layouts),
        arch=arch,
        device=device,
        sm_count=sm_count,
        emulated=emulated,
        tunables=_fixed(tunables or {}),
        epilogue=problem.epilogue,
        bias=problem.bias,
    )


def packed_arrangement(problem: GemmProblem, layout: Layout) -> Arrangement:
    """Operands without gaps."""
    laid = replace(problem, layout=layout)
    return Arrangement(
        layout=layout,
        alignment=laid.alignment(laid.packed_strides()),
        padded=laid.alignment(aligned_strides(laid, _ALL)),
        padding_copies=_ALL,
    )


def question_of_arrays(
    problem: GemmProblem,
    a: ArrayView,
    b: ArrayView,
    c: ArrayView,
    *,
    arch: str | None,
    device: str | None,
    sm_count: int | None,
    emulated: bool,
    tunables: Mapping[str, Any],
) -> ChoiceQuestion:
    """For arrays with three axes; arrays of the host are uploaded packed, so their padding is free.

    Layouts that need the fewest copies come first.
    """
    lies = []
    for layout in LAYOUTS:
        laid = replace(problem, layout=layout)
        at_a, at_b, at_c = lies_as(a, layout[0]), lies_as(b, layout[1]), lies_as(c, "n")
        strides = Strides(
            lda=at_a.ld,
            ldb=at_b.ld,
            ldc=at_c.ld,
            stride_a=at_a.batch_stride,
            stride_b=at_b.batch_stride,
            stride_c=at_c.batch_stride,
        )
        addresses = (at_a.address, at_b.address, at_c.address)
        lies.append(
            Arrangement(
                layout=layout,
                alignment=laid.alignment(strides, addresses),
                padded=laid.alignment(aligned_strides(laid, _ALL)),
                copied=frozenset(n for n, x in (("a", at_a), ("b", at_b)) if x.copied),
                padding_copies=frozenset() if a.device is None else _ALL,
            )
        )
    return ChoiceQuestion(
        dtype=problem.dtype,
        out=problem.out,
        shape=problem.shape,
        arrangements=tuple(sorted(lies, key=lambda lie: len(lie.copied))),
        arch=arch,
        device=device,
        sm_count=sm_count,
        emulated=emulated,
        tunables=_fixed(tunables),
        epilogue=problem.epilogue,
        bias=problem.bias,
    )


def _fixed(tunables: Mapping[str, Any]) -> tuple[tuple[str, TunableValue], ...]:
    """As the caller wrote them; each variant reads them in its own way."""
    return tuple(
        (name, value if isinstance(value, int | str) else str(value))
        for name, value in tunables.items()
    )
