"""The libraries' answer to the same problem: cuBLAS through CuPy, cuBLASLt through nvmath."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gemm_lab.core.problem import GemmProblem, Strides
from gemm_lab.errors import UsageError
from gemm_lab.gpu._cuda import cuda
from gemm_lab.gpu.blas_types import (
    DATA_TYPES,
    BlasTypes,
    ColumnMajor,
    LtEpilogue,
    blas_types,
    column_major,
    lt_epilogue,
)
from gemm_lab.gpu.cublas import load_cublas
from gemm_lab.gpu.cublas_lt import WORKSPACE_BYTES, LtAddresses, LtMatmul, LtQuestion, lt_matmuls
from gemm_lab.gpu.faults import POISONING, status_of, translate

__all__ = ["Baseline", "Baselines", "GemmBuffers", "baselines", "best_baseline"]

INSTALL = "pip install 'gemm-lab[cublas]'"


@dataclass(frozen=True, kw_only=True)
class GemmBuffers:
    """Byte addresses of one set of operands on the device."""

    a: int
    b: int
    c: int
    bias: int = 0


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """One library call. `run(i)` starts it with buffer set i on CuPy's current stream.

    `name` has the library's version, `compute_type` cuBLAS's own word for the arithmetic,
    `note` what is not the same as in the problem; empty when all is. `fast_accumulation`: fp8 sums
    with the fewer bits that the tensor cores keep.
    """

    name: str
    compute_type: str
    run: Callable[[int], None]
    note: str = ""
    fast_accumulation: bool = False


@dataclass(frozen=True, kw_only=True)
class Baselines:
    """The candidates, and for each library that gives none the reason and the mend."""

    candidates: tuple[Baseline, ...]
    missing: tuple[str, ...] = ()


def baselines(
    problem: GemmProblem,
    strides: Strides,
    buffers: Sequence[GemmBuffers],
    *,
    device: int,
    heuristics: int = 3,
) -> Baselines:
    """Every library call that computes the problem in the same arithmetic, untried.

    `buffers` are the sets that `run` chooses from. cuBLASLt contributes its first `heuristics`
    algorithms. A problem whose epilogue no library has is answered without it, and says so.
    """
    if not buffers:
        raise UsageError("a baseline needs at least one set of buffers")
    shape = problem.shape
    if 0 in (shape.m, shape.n, shape.k, shape.batch):
        return Baselines(candidates=(), missing=("an empty product has no baseline",))
    types = blas_types(problem)
    if types is None:
        return Baselines(
            candidates=(),
            missing=(f"cuBLAS has no {problem.dtype.name} with alpha = {problem.alpha}",),
        )
    question = column_major(problem, strides)
    fused = lt_epilogue(problem)
    has_epilogue = problem.bias or (problem.epilogue or "x") != "x"
    missing: list[str] = []
    found: list[Baseline] = []
    with cuda().cupy.cuda.Device(device):
        if types.lt:
            found += _from_lt(
                problem,
                types,
                question,
                fused or LtEpilogue(number=1, bias=False, note="without the epilogue"),
                buffers,
                heuristics,
                missing,
            )
        if types.gemm_ex and not (has_epilogue and fused and found):
            found += _from_gemm_ex(
                problem,
                types,
                question,
                buffers,
                "without the epilogue" if has_epilogue else "",
                missing,
            )
    return Baselines(candidates=tuple(found), missing=tuple(missing))


def best_baseline(
    candidates: Sequence[Baseline], time_ms: Callable[[Callable[[], None]], float]
) -> Baseline | None:
    """The fastest candidate that runs, by `time_ms` (median milliseconds of a callable).

    What a library refuses at run time is passed over; a poisoned context is an error.
    """
    best: Baseline | None = None
    best_ms = float("inf")
    for candidate in candidates:
        try:
            taken_ms = time_ms(lambda run=candidate.run: run(0))  # type: ignore[misc]
        except RuntimeError as fault:
            if status_of(fault) in POISONING:
                raise translate(fault, f"the baseline {candidate.name}") from fault
            continue
        if taken_ms < best_ms:
            best, best_ms = candidate, taken_ms
    return best


def version_text(version: int) -> str:
    """ "12.9.1" for cuBLAS's 120901."""
    return f"{version // 10000}.{version // 100 % 100}.{version % 100}"


def _from_gemm_ex(
    problem: GemmProblem,
    types: BlasTypes,
    q: ColumnMajor,
    buffers: Sequence[GemmBuffers],
    note: str,
    missing: list[str],
) -> list[Baseline]:
    try:
        cublas = load_cublas()
    except ImportError as fault:
        missing.append(f"cuBLAS cannot be loaded ({fault}); {INSTALL}")
        return []
    if not q.fits_int:
        missing.append("cuBLAS: a dimension or stride is beyond its 32-bit arguments")
        return []
    alpha, beta = types.host_scalar(problem.alpha), types.host_scalar(problem.beta)
    alpha_at, beta_at = ctypes.addressof(alpha), ctypes.addressof(beta)
    current_stream = cuda().cupy.cuda.get_current_stream

    def run(index: int, _keep: Any = (alpha, beta)) -> None:
        at = buffers[index]
        cublas.gemm(
            types,
            q,
            first=at.b,
            second=at.a,
            c=at.c,
            alpha_at=alpha_at,
            beta_at=beta_at,
            stream=current_stream().ptr,
        )

    return [
        Baseline(
            name=f"cuBLAS {version_text(cublas.version)}",
            compute_type=types.compute,
            run=run,
            note=note,
        )
    ]


def _from_lt(
    problem: GemmProblem,
    types: BlasTypes,
    q: ColumnMajor,
    epilogue: LtEpilogue,
    buffers: Sequence[GemmBuffers],
    count: int,
    missing: list[str],
) -> list[Baseline]:
    try:
        from nvmath.bindings import cublasLt

        version = version_text(int(cublasLt.get_version()))
    except Exception as fault:  # its loader has errors of its own
        missing.append(f"cuBLASLt cannot be loaded ({fault}); {INSTALL}")
        return []
    cupy = cuda().cupy
    workspace = cupy.cuda.alloc(WORKSPACE_BYTES)
    addresses = [LtAddresses(first=at.b, second=at.a, c=at.c, bias=at.bias) for at in buffers]
    found: list[Baseline] = []
    accumulations = (False, True) if problem.dtype.name == "fp8_e4m3" else (False,)
    for fast in accumulations:
        question = LtQuestion(
            types=types,
            shape=q,
            alpha=problem.alpha,
            beta=problem.beta,
            epilogue=epilogue,
            bias_type=DATA_TYPES[problem.out.name],
            fast_accumulation=fast,
        )
        matmuls = lt_matmuls(
            cublasLt, question, addresses=addresses, workspace=workspace, count=count
        )
        if not matmuls:
            missing.append(
                f"cuBLASLt {version} has no algorithm for {problem.dtype.name} in layout "
                f"{problem.layout} at {problem.shape}"
            )
        compute_type = types.lt_compute + (", fast accumulation" if fast else "")
        for number, matmul in enumerate(matmuls, start=1):
            found.append(
                Baseline(
                    name=f"cuBLASLt {version} #{number}",
                    compute_type=compute_type,
                    run=_lt_run(matmul, addresses, cupy.cuda.get_current_stream),
                    note=epilogue.note,
                    fast_accumulation=fast,
                )
            )
    return found


def _lt_run(
    matmul: LtMatmul, addresses: Sequence[LtAddresses], current_stream: Callable[[], Any]
) -> Callable[[int], None]:
    def run(index: int) -> None:
        matmul.run(addresses[index], current_stream().ptr)

    return run
