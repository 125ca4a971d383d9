"""Holds a result against the reference, element by element."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gemm_lab.core.measurement import MaxError, Tolerance
from gemm_lab.core.problem import GemmProblem
from gemm_lab.lab.reference import namespace, reference, tolerance_reason

__all__ = ["Matrices", "Verdict", "verify"]

Array = Any
_BLOCK_BYTES = 256 * 2**20


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Right or wrong, by how much, and of how many elements.

    `max_error` is the element that uses up most of its bound. `checked` is the share of the
    elements that were compared (1.0 unless the reference was too dear).
    """

    ok: bool
    relative_rmse: float | None
    max_error: MaxError | None
    tolerance: Tolerance
    wrong_count: int
    checked: float = 1.0


Rows = Callable[[slice], Array]


@dataclass(frozen=True, kw_only=True)
class Matrices:
    """Rows of each matrix in float64, [batch, rows, cols], on whichever side computes.

    `c_before` is None where the old C is not read, `bias` where there is none.
    """

    a: Rows
    b: Callable[[], Array]
    c_after: Rows
    c_before: Rows | None = None
    bias: Array | None = None


def verify(problem: GemmProblem, matrices: Matrices, *, rows: Array | None = None) -> Verdict:
    """Compare C with epilogue(alpha A B + beta C) row block by row block.

    `rows` are the sorted indices of the rows to compare; None compares all.
    """
    import numpy

    s = problem.shape
    chosen = numpy.arange(s.m) if rows is None else numpy.asarray(rows)
    step = max(1, _BLOCK_BYTES // (8 * max(s.n, 1) * max(s.batch, 1) * 6))
    b = matrices.b()
    worst: tuple[float, MaxError] | None = None
    wrong, square_error, square_expected, largest_bound = 0, 0.0, 0.0, 0.0
    for start, stop in _runs(chosen, step):
        block = slice(start, stop)
        with _quiet(namespace(b)):
            ref = reference(
                problem,
                matrices.a(block),
                b,
                None if matrices.c_before is None else matrices.c_before(block),
                matrices.bias,
                row0=start,
            )
        found = _compare(problem, ref.expected, ref.bound, matrices.c_after(block), start)
        wrong += found.wrong
        square_error += found.square_error
        square_expected += found.square_expected
        largest_bound = max(largest_bound, found.largest_bound)
        if worst is None or found.ratio > worst[0]:
            worst = (found.ratio, found.worst)
    rmse = math.sqrt(square_error / square_expected) if square_expected > 0 else None
    if rmse is None and square_error == 0:
        rmse = 0.0
    return Verdict(
        ok=wrong == 0,
        relative_rmse=rmse if rmse is not None and math.isfinite(rmse) else None,
        max_error=None if worst is None else worst[1],
        tolerance=Tolerance(value=largest_bound, reason=tolerance_reason(problem)),
        wrong_count=wrong,
        checked=len(chosen) / s.m if s.m else 1.0,
    )


def _runs(rows: Any, step: int) -> list[tuple[int, int]]:
    """Consecutive rows as (start, stop), none longer than step."""
    found: list[tuple[int, int]] = []
    for row in rows.tolist():
        if found and found[-1][1] == row and row - found[-1][0] < step:
            found[-1] = (found[-1][0], row + 1)
        else:
            found.append((row, row + 1))
    return found


@dataclass(frozen=True, kw_only=True)
class _Block:
    wrong: int
    square_error: float
    square_expected: float
    largest_bound: float
    ratio: float
    worst: MaxError


def _compare(problem: GemmProblem, expected: Array, bound: Array, got: Array, row0: int) -> _Block:
    """One block; a NaN where none belongs is wrong, whatever its distance says."""
    xp = namespace(expected)
    limit = _largest(problem.out.name)
    with _quiet(xp):
        difference = xp.abs(got - expected)
        same_special = (xp.isnan(expected) & xp.isnan(got)) | (expected == got)
        # Past the largest number of the output type, infinity (or, for integers, the limit).
        beyond = xp.abs(expected) + bound >= limit
        overflow = beyond & (xp.sign(got) == xp.sign(expected)) & (xp.abs(got) >= limit)
        good = (difference <= bound) | same_special | overflow
        ratio = xp.where(good, difference / xp.maximum(bound, 1e-300), xp.inf)
        ratio = xp.where(same_special | overflow, 0.0, ratio)
        # A wrong finite element tells more than a NaN: rank by distance among the wrong.
        rank = xp.where(good, ratio, 1e6 + xp.nan_to_num(difference, nan=1e30, posinf=1e30))
        index = int(xp.argmax(rank))
        finite = xp.isfinite(difference)
        square_error = float(xp.sum(xp.where(finite, difference, 0.0) ** 2))
        if bool(xp.any(~good & ~finite)):
            square_error = math.nan  # a wrong NaN has no distance, and is not left out of the mean
        square_expected = float(xp.sum(xp.where(xp.isfinite(expected), expected, 0.0) ** 2))
    batch, row, col = (int(i) for i in _unravel(index, expected.shape))
    place = (row + row0, col) if problem.shape.batch == 1 else (batch, row + row0, col)
    worst = MaxError(
        index=place,
        got=_number(got[batch, row, col]),
        expected=_number(expected[batch, row, col]),
        bound=_number(bound[batch, row, col]),
    )
    return _Block(
        wrong=int(xp.sum(~good)),
        square_error=square_error,
        square_expected=square_expected,
        largest_bound=float(xp.max(bound)),
        ratio=float(rank.reshape(-1)[index]),
        worst=worst,
    )


def _largest(out: str) -> float:
    """The value from which rounding gives infinity, or the largest integer."""
    return {
        "fp32": 3.4028235677973366e38,
        "fp16": 65520.0,
        "bf16": 3.3961775292304957e38,
        "int32": 2147483647.0,
    }[out]


def _unravel(index: int, shape: tuple[int, ...]) -> list[int]:
    found = []
    for extent in reversed(shape):
        index, place = divmod(index, extent)
        found.append(place)
    return found[::-1]


def _number(value: Any) -> float | str:
    number = float(value)
    return number if math.isfinite(number) else str(number)


def _quiet(xp: Any) -> Any:
    import contextlib

    import numpy

    return numpy.errstate(all="ignore") if xp is numpy else contextlib.nullcontext()
