"""The kernel that is wrong on request, and arrays for the tests of kinds of faults."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np

from gemm_lab.core.dtypes import ScalarType
from gemm_lab.core.dtypes import dtype as dtype_named
from gemm_lab.core.problem import GemmProblem, Shape
from gemm_lab.emulator import PtxError
from gemm_lab.emulator.backend import EmulatorBackend
from gemm_lab.errors import UsageError
from gemm_lab.lab.inputs import decode, uniform
from gemm_lab.lab.prepare import Request
from gemm_lab.lab.trial import make_executor
from gemm_lab.lab.verify import Matrices, Verdict, verify
from gemm_lab.lab.workbench import Workbench, choose_arch
from gemm_lab.variants import Catalogue

MODES = str(Path(__file__).parent / "modes.cu.j2")
VARIANTS = [v.name for v in Catalogue().ladder()]
# Those that the emulator is asked about here; the others are held on the card.
RUNGS = [v.name for v in Catalogue().ladder() if "fp32" in v.dtypes]


@functools.cache
def emulated(name: str) -> str | None:
    """A dtype in which the emulator runs a variant's default kernel, fp32 first; None if none."""
    variant = Catalogue().get(name)
    for dtype in sorted(variant.dtypes, key=lambda d: d != "fp32"):
        support = variant.support(dtype)
        problem = GemmProblem(
            shape=Shape(m=8, n=8, k=8), dtype=support.dtype, out=support.dtype.default_out,
            layout=support.layouts[0],
        )  # fmt: skip
        arch = choose_arch(support.arch, None, None)
        try:
            make_executor(
                Workbench(), EmulatorBackend(arch=arch), Request.of(variant, dtype, {}), problem
            )
        except (PtxError, UsageError):
            continue
        return dtype
    return None


def numbers(shape: tuple[int, ...], scalar: ScalarType | str, seed: int) -> Any:
    """Seeded values of a storage type."""
    kind = dtype_named(scalar).storage if isinstance(scalar, str) else scalar
    return uniform(shape, kind, seed=seed)


def judge(
    c: Any,
    a: Any,
    b: Any,
    *,
    dtype: str = "fp32",
    before: Any = None,
    rows: Any = None,
    **question: Any,
) -> Verdict:
    """The lab's verification of host arrays [m, n], [m, k], [k, n] in their storage types.

    With `rows` c and a hold those rows alone, of a C that has question["m"] of them.
    """
    arithmetic = dtype_named(dtype)
    out = arithmetic.out(question.pop("out_dtype", None))
    problem = GemmProblem(
        shape=Shape(m=question.pop("m", a.shape[0]), n=b.shape[1], k=a.shape[1]),
        dtype=arithmetic,
        out=out,
        **question,
    )
    chosen = np.arange(problem.shape.m) if rows is None else np.asarray(rows)

    def picked(array: Any, block: slice, scalar: ScalarType) -> Any:
        first = int(np.searchsorted(chosen, block.start))
        return decode(array[None, first : first + block.stop - block.start], scalar)

    return verify(
        problem,
        Matrices(
            a=lambda block: picked(a, block, arithmetic.storage),
            b=lambda: decode(b[None], arithmetic.storage),
            c_after=lambda block: picked(c, block, out),
            c_before=None if before is None else lambda block: picked(before, block, out),
        ),
        rows=rows,
    )
