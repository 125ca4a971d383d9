"""Row-major problems in cuBLAS's speech, against a NumPy model of what cuBLAS computes."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gemm_lab.core.dtypes import DTYPES, LAYOUTS, Layout, dtype
from gemm_lab.core.problem import GemmProblem, Shape, Strides
from gemm_lab.gpu import cublas, cublas_lt
from gemm_lab.gpu.baseline import Baseline, best_baseline, version_text
from gemm_lab.gpu.blas_types import ColumnMajor, blas_types, column_major, lt_epilogue


def problem(**changes: Any) -> GemmProblem:
    values: dict[str, Any] = {
        "shape": Shape(m=3, n=5, k=7),
        "dtype": dtype("fp32"),
        "out": dtype("fp32").default_out,
    }
    return GemmProblem(**{**values, **changes})


def column_major_matrix(memory: np.ndarray, rows: int, columns: int, ld: int) -> np.ndarray:
    assert ld >= rows
    return np.array([[memory[j * ld + i] for j in range(columns)] for i in range(rows)])


def blas(q: ColumnMajor, first: np.ndarray, second: np.ndarray, c: np.ndarray) -> None:
    """C = op(first) op(second), all column-major, in place."""
    x = column_major_matrix(first, q.first_rows, q.first_columns, q.first_ld)
    y = column_major_matrix(second, q.second_rows, q.second_columns, q.second_ld)
    result = (x.T if q.first_op else x) @ (y.T if q.second_op else y)
    assert result.shape == (q.m, q.n)
    for i, j in itertools.product(range(q.m), range(q.n)):
        c[j * q.ldc + i] = result[i, j]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_row_major_product_in_every_layout(layout: Layout) -> None:
    random = np.random.default_rng(1)
    m, n, k = 3, 5, 7
    a_rows, a_columns = (m, k) if layout[0] == "n" else (k, m)
    b_rows, b_columns = (k, n) if layout[1] == "n" else (n, k)
    strides = Strides(lda=a_columns + 2, ldb=b_columns + 3, ldc=n + 1)
    a = random.normal(size=(a_rows, strides.lda))
    b = random.normal(size=(b_rows, strides.ldb))
    c = np.zeros((m, strides.ldc))
    blas(column_major(problem(layout=layout), strides), b.ravel(), a.ravel(), c.reshape(-1))
    left = a[:, :a_columns] if layout[0] == "n" else a[:, :a_columns].T
    right = b[:, :b_columns] if layout[1] == "n" else b[:, :b_columns].T
    np.testing.assert_allclose(c[:, :n], left @ right)
    assert not c[:, n:].any()


@pytest.mark.parametrize("name", DTYPES)
def test_each_dtype_meets_its_own_arithmetic(name: str) -> None:
    types = blas_types(problem(dtype=dtype(name), out=dtype(name).default_out))
    assert types is not None
    expected = {
        "fp32": "COMPUTE_32F_PEDANTIC",
        "fp32x3": "COMPUTE_32F_PEDANTIC",
        "tf32": "COMPUTE_32F_FAST_TF32",
        "int8": "COMPUTE_32I",
    }.get(name, "COMPUTE_32F")
    assert types.compute == expected
    assert types.gemm_ex == (name != "fp8_e4m3")
    if name in ("fp32", "fp32x3"):
        assert types.lt_compute == "COMPUTE_32F"


def test_integer_product_takes_whole_factors_only() -> None:
    int8 = dtype("int8")
    assert blas_types(problem(dtype=int8, out=int8.out("int32"), alpha=1.5)) is None
    whole = blas_types(problem(dtype=int8, out=int8.out("int32"), alpha=2.0))
    assert whole is not None
    assert whole.scale == "int32"
    assert isinstance(whole.host_scalar(2.0), ctypes.c_int32)
    real = blas_types(problem(dtype=int8, out=int8.out("fp32"), alpha=1.5))
    assert real is not None
    assert (real.scale, real.lt) == ("fp32", False)


@pytest.mark.parametrize(
    ("epilogue", "bias", "number"),
    [
        (None, False, 1),
        ("x", False, 1),
        (None, True, 4),
        ("x + bias", True, 4),
        ("relu", False, 2),
        ("relu(x)", True, 6),
        ("relu(x + bias)", True, 6),
        ("gelu", True, 36),
        ("silu", False, None),
        ("x * 2", False, None),
    ],
)
def test_epilogues_of_cublas_lt(epilogue: str | None, bias: bool, number: int | None) -> None:
    found = lt_epilogue(problem(epilogue=epilogue, bias=bias))
    assert (found and found.number) == number


@pytest.mark.parametrize(
    ("addresses", "expected"), [([512, 1024], 256), ([512, 16], 16), ([2, 256], 2), ([3], 1)]
)
def test_common_alignment(addresses: list[int], expected: int) -> None:
    assert cublas_lt._alignment(addresses) == expected


def test_version() -> None:
    assert version_text(120901) == "12.9.1"
    assert version_text(130002) == "13.0.2"


def test_loaded_library_is_found_by_its_mapping(tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    maps.write_text(
        "7f00-7f01 r-xp 00000000 00:00 0 [vdso]\n"
        "7f02-7f03 r-xp 00000000 08:01 12 /opt/a b/libcublasLt.so.12\n"
        "7f04-7f05 r-xp 00000000 08:01 13 /opt/a b/libcublas.so.12\n"
    )
    assert cublas._loaded_path(maps) == "/opt/a b/libcublas.so.12"
    assert cublas._loaded_path(tmp_path / "none") is None


def candidate(name: str, run: Callable[[int], None]) -> Baseline:
    return Baseline(name=name, compute_type="COMPUTE_32F", run=run)


def test_best_passes_over_what_is_refused() -> None:
    def refuse(index: int) -> None:
        raise RuntimeError("CUBLAS_STATUS_NOT_SUPPORTED")

    taken = {"slow": 2.0, "fast": 1.0}
    ran: list[str] = []
    candidates = [
        candidate("refused", refuse),
        candidate("slow", lambda index: ran.append("slow")),
        candidate("fast", lambda index: ran.append("fast")),
    ]

    def time_ms(run: Callable[[], None]) -> float:
        run()
        return taken[ran[-1]]

    best = best_baseline(candidates, time_ms)
    assert best is not None
    assert best.name == "fast"
    assert best_baseline(candidates[:1], time_ms) is None
