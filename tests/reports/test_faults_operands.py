"""Arrays as users have them, scalars as BLAS means them, sizes at the edge; on the emulator."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from fault_helpers import MODES, RUNGS, emulated, judge, numbers

import gemm_lab
from gemm_lab.core.dtypes import dtype as dtype_named
from gemm_lab.errors import UsageError
from gemm_lab.lab import prepare
from gemm_lab.lab.workbench import default_workbench
from gemm_lab.variants import Catalogue


def need(name: str) -> str:
    dtype = emulated(name)
    if dtype is None:
        pytest.skip(f"the emulator does not run {name} yet")
    return dtype


def multiply(a: Any, b: Any, **keywords: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gemm_lab.CopyWarning)
        return gemm_lab.matmul(a, b, backend="emulator", **keywords)


@pytest.mark.parametrize("name", RUNGS)
def test_all_sizes_different_and_prime(name: str) -> None:
    """M, N, K exchanged somewhere, a tail left out, or only squares right: none would pass."""
    dtype = need(name)
    for layout in Catalogue().get(name).support(dtype).layouts:
        for shape in ((131, 37, 53), (29, 139, 7)):
            found = gemm_lab.run(name, shape=shape, layout=layout, dtype=dtype, backend="emulator")
            assert found.verified, (layout, shape, found.max_error)


@pytest.mark.parametrize("name", RUNGS)
def test_odd_rows_have_no_wide_access(name: str) -> None:
    """Odd K and N, and slices that begin off a 16-byte boundary: a wide load would be a fault."""
    dtype = need(name)
    out = dtype_named(dtype).default_out
    for k, n in ((33, 35), (64, 35), (33, 64)):
        a, b = numbers((40, k + 3), dtype, 1)[1:, 3:], numbers((k + 1, n + 5), dtype, 2)[1:, 5:]
        whole = numbers((41, n + 7), out, 3)
        c = whole[1:40, 5 : n + 5]
        before = whole.copy()
        multiply(a, b, out=c, variant=name, dtype=dtype)
        assert judge(c, a, b, dtype=dtype).ok
        kept = np.ones(whole.shape, bool)
        kept[1:40, 5 : n + 5] = False
        np.testing.assert_array_equal(whole[kept], before[kept])


VIEWS = {
    "transposed": lambda x: x.T.copy().T,
    "sliced": lambda x: np.pad(x, ((2, 1), (3, 4)))[2:-1, 3:-4],
    "stepped": lambda x: np.repeat(np.repeat(x, 2, 0), 3, 1)[::2, ::3],
    "rows reversed": lambda x: x[::-1].copy()[::-1],
    "both reversed": lambda x: x[::-1, ::-1].copy()[::-1, ::-1],
    "column-major": np.asfortranarray,
}


@pytest.mark.parametrize("kind", VIEWS)
def test_a_view_is_read_as_its_elements_say(kind: str) -> None:
    a, b = numbers((23, 17), "fp32", 1), numbers((17, 19), "fp32", 2)
    plain = multiply(a, b, variant="shared")
    see = VIEWS[kind]
    assert (see(a) == a).all()
    for x, y in ((see(a), b), (a, see(b)), (see(a), see(b))):
        np.testing.assert_array_equal(multiply(x, y, variant="shared"), plain)
    out = see(np.zeros((23, 19), np.float32))
    assert multiply(a, b, out=out, variant="shared") is out
    np.testing.assert_array_equal(out, plain)


def test_broadcast_operands_are_read_and_a_broadcast_output_is_refused() -> None:
    row, b = numbers((1, 17), "fp32", 1), numbers((17, 19), "fp32", 2)
    a = np.broadcast_to(row, (23, 17))
    assert judge(multiply(a, b, variant="shared"), a, b).ok
    column = np.broadcast_to(numbers((17, 1), "fp32", 3), (17, 19))
    assert judge(multiply(a, column, variant="shared"), a, column).ok
    out = np.lib.stride_tricks.as_strided(np.zeros(19, np.float32), (23, 19), (0, 4))
    with pytest.raises(UsageError, match="share memory"):
        multiply(a, b, out=out, variant="shared")


@pytest.mark.parametrize("name", RUNGS)
def test_beta_0_does_not_read_c_and_alpha_0_does_not_read_a_and_b(name: str) -> None:
    dtype = need(name)
    arithmetic = dtype_named(dtype)
    a, b = numbers((37, 20), dtype, 1), numbers((20, 41), dtype, 2)
    if arithmetic.default_out.unit_roundoff:
        out = np.full((37, 41), np.nan, arithmetic.default_out.numpy())
        multiply(a, b, out=out, beta=0.0, variant=name, dtype=dtype)
        assert judge(out, a, b, dtype=dtype).ok
        a, b = np.full_like(a, np.nan), np.full_like(b, np.inf)
    out = numbers((37, 41), arithmetic.default_out, 3)
    before = out.copy()
    multiply(a, b, out=out, alpha=0.0, beta=2.0, variant=name, dtype=dtype)
    np.testing.assert_array_equal(out, 2 * before)
    multiply(a, b, out=out, alpha=0.0, beta=0.0, variant=name, dtype=dtype)
    assert not out.any()


@pytest.mark.parametrize(
    "factor", [1 / 3, 2, np.float32(0.1), np.float64(0.1), np.int64(-3), np.array(1.5), True]
)
def test_a_factor_of_any_python_type_arrives_as_the_kernel_s_own(factor: Any) -> None:
    """A Python float is a double; four bytes of one would be another number."""
    a, b = numbers((5, 6), "fp32", 1), numbers((6, 7), "fp32", 2)
    out = numbers((5, 7), "fp32", 3)
    before = out.copy()
    multiply(a, b, out=out, alpha=factor, beta=factor, variant="naive")
    assert judge(out, a, b, before=before, alpha=float(factor), beta=float(factor)).ok


@pytest.mark.parametrize("factor", [float("nan"), float("inf"), "x", None])
def test_a_factor_that_is_no_number_is_refused(factor: Any) -> None:
    a = np.ones((2, 2), np.float32)
    with pytest.raises((UsageError, ValueError, TypeError)):
        multiply(a, a, alpha=factor, variant="naive")


@pytest.mark.parametrize("name", RUNGS)
def test_nothing_is_launched_for_an_empty_result(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    dtype = need(name)
    emulator = default_workbench().emulator("sm_80")
    launched: list[object] = []
    monkeypatch.setattr(type(emulator), "run", lambda self, *_: launched.append(self))
    for m, n, k in ((0, 5, 3), (5, 0, 3), (0, 0, 0), (0, 5, 0)):
        assert multiply(
            numbers((m, k), dtype, 1), numbers((k, n), dtype, 2), variant=name, dtype=dtype
        ).shape == (m, n)
        found = gemm_lab.run(name, shape=(m, n, k), dtype=dtype, backend="emulator")
        assert found.verified is True
        assert found.warnings[-1] == "an empty C: no launch"
    found = gemm_lab.run(name, shape=(5, 5, 5, 0), dtype=dtype, backend="emulator")
    assert found.verified is True
    assert launched == []


@pytest.mark.parametrize("name", RUNGS)
def test_a_sum_over_nothing_gives_beta_c(name: str) -> None:
    dtype = need(name)
    out = numbers((9, 11), dtype_named(dtype).default_out, 3)
    before = out.copy()
    a, b = numbers((9, 0), dtype, 1), numbers((0, 11), dtype, 2)
    multiply(a, b, out=out, beta=1.0, variant=name, dtype=dtype)
    np.testing.assert_array_equal(out, before)
    assert not multiply(a, b, variant=name, dtype=dtype).any()
    assert gemm_lab.run(name, shape=(9, 11, 0), dtype=dtype, backend="emulator").verified


@pytest.mark.parametrize("name", ["shared", "tiled"])
def test_more_products_than_the_z_axis_holds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gemm_lab.lab.execute.MAX_BATCH", 3)
    monkeypatch.setattr(prepare, "MAX_BATCH", 3)
    a, b = numbers((8, 5, 6), "fp32", 1), numbers((1, 6, 7), "fp32", 2)
    bias = numbers((7,), "fp32", 3)
    got = multiply(a, b, variant=name, bias=bias)
    np.testing.assert_allclose(got, a @ b + bias, rtol=1e-5, atol=1e-5)


def test_a_sweep_of_a_large_batch_is_not_pruned() -> None:
    """The z axis ends at 65535; the lab cuts a batch there, before and after planning."""
    found = gemm_lab.sweep(MODES, THREADS=[1], shape=(1, 1, 2, 65_537), backend="emulator")
    assert found.pruned == ()
    assert found[0].verified is True


def test_thousands_of_calls_hold_no_memory() -> None:
    a, b = numbers((64, 64), "fp32", 1), numbers((64, 64), "fp32", 2)
    memory = default_workbench().emulator("sm_80").memory
    multiply(a, b, variant="y_first")
    before = memory.used_bytes
    for beta in (0.0, 1.0) * 4:
        multiply(a, b, out=np.zeros((64, 64), np.float32), bias=a[0], beta=beta, variant="y_first")
    with pytest.raises(gemm_lab.GemmLabError):
        multiply(a, b, variant=MODES, MODE="illegal")
    multiply(a, b, variant="y_first")
    assert memory.used_bytes <= before + 2**16
