"""A wrong result must not pass for a right one, nor a right one for a wrong one."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from fault_helpers import MODES, judge, numbers

import gemm_lab

FLOATS = {
    "fp16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "fp8_e4m3": ml_dtypes.float8_e4m3fn,
    "fp8_e5m2": ml_dtypes.float8_e5m2,
}


def rounded(array: Any, kind: str) -> Any:
    """Values as a narrower type holds them, in float32."""
    wide = np.asarray(array, np.float32)
    if kind == "tf32":
        bits = wide.view(np.uint32)
        return ((bits + 0xFFF + ((bits >> 13) & 1)) & ~np.uint32(0x1FFF)).view(np.float32)
    return wide.astype(FLOATS[kind]).astype(np.float32)


def wide(array: Any, dtype: str) -> Any:
    """float64 of stored values."""
    if dtype == "fp8_e4m3":
        array = array.view(ml_dtypes.float8_e4m3fn)
    return array.astype(np.float64)


def stored(values: Any, dtype: str) -> Any:
    """float64 results in the output type of a dtype."""
    kinds = {"fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp8_e4m3": ml_dtypes.bfloat16}
    return values.astype(kinds.get(dtype, np.float32))


@pytest.mark.parametrize("mode", ["zeros", "nan", "lazy", "last", "half"])
def test_each_wrong_kernel_fails(mode: str) -> None:
    """One NaN; zeros; elements never written; the very last one off; fp16 sums for fp32."""
    found = gemm_lab.run(MODES, shape=(19, 23, 31), backend="emulator", MODE=mode)
    assert found.verified is False
    assert found.error is None
    assert found.max_error is not None
    # A mean over the finite ones alone would look right beside a NaN.
    assert (found.relative_rmse is None) == (mode in ("nan", "lazy"))


def test_the_right_kernel_passes() -> None:
    for shape in ((1, 1, 1), (19, 23, 31), (2, 3, 700)):
        found = gemm_lab.run(MODES, shape=shape, backend="emulator")
        assert found.verified is True
        assert found.tolerance is not None
        assert str(shape[2]) in found.tolerance.reason


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [(0, 0), (36, 30), (17, 4)])
def test_one_special_number_fails_wherever_it_stands(bad: float, place: tuple[int, int]) -> None:
    a, b = numbers((37, 29), "fp32", 1), numbers((29, 31), "fp32", 2)
    c = stored(wide(a, "fp32") @ wide(b, "fp32"), "fp32")
    assert judge(c, a, b).ok
    c[place] = bad
    found = judge(c, a, b)
    assert (found.ok, found.wrong_count) == (False, 1)
    assert found.max_error is not None
    assert found.max_error.index == place


def test_a_special_number_that_belongs_there_passes_and_a_number_in_its_place_fails() -> None:
    a, b = numbers((37, 29), "fp32", 1), numbers((29, 31), "fp32", 2)
    a[3, 5], b[7, 8] = np.nan, np.inf
    with np.errstate(invalid="ignore"):
        c = stored(wide(a, "fp32") @ wide(b, "fp32"), "fp32")
    assert judge(c, a, b).ok
    c[3, 0] = 0.0
    assert not judge(c, a, b).ok


@pytest.mark.parametrize("k", [1, 7, 64, 1000, 4096])
@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16", "fp8_e4m3", "tf32"])
def test_sums_in_any_order_pass_and_zeros_fail(dtype: str, k: int) -> None:
    """Summed forwards, backwards, in blocks, or pairwise, each step rounded to fp32."""
    a, b = numbers((5, k), dtype, k), numbers((k, 7), dtype, k + 1)
    x, y = wide(a, dtype).astype(np.float32), wide(b, dtype).astype(np.float32)
    if dtype == "tf32":
        x, y = rounded(x, "tf32"), rounded(y, "tf32")
    products = x[:, :, None] * y[None]  # [m, k, n]
    forwards = np.cumsum(products, axis=1, dtype=np.float32)[:, -1]
    backwards = np.cumsum(products[:, ::-1], axis=1, dtype=np.float32)[:, -1]
    pairwise = products.sum(axis=1, dtype=np.float32)
    for total in (forwards, backwards, pairwise):
        assert judge(stored(total, dtype), a, b, dtype=dtype).ok
    assert not judge(stored(0 * pairwise, dtype), a, b, dtype=dtype).ok


@pytest.mark.parametrize(
    ("dtype", "lower"),
    [
        ("fp32", "tf32"),
        ("fp32", "bf16"),
        ("fp32x3", "tf32"),
        ("tf32", "bf16"),
        ("fp16", "bf16"),
        ("bf16", "fp8_e4m3"),
        ("fp8_e4m3", "fp8_e5m2"),
    ],
)
@pytest.mark.parametrize("k", [16, 256, 2048])
def test_the_next_lower_precision_fails(dtype: str, lower: str, k: int) -> None:
    a, b = numbers((33, k), dtype, 1), numbers((k, 35), dtype, 2)
    low = rounded(wide(a, dtype), lower).astype(np.float64) @ rounded(wide(b, dtype), lower)
    assert not judge(stored(low, dtype), a, b, dtype=dtype).ok


def test_integers_are_exact() -> None:
    a, b = numbers((9, 300), "int8", 1), numbers((300, 8), "int8", 2)
    c = a.astype(np.int32) @ b.astype(np.int32)
    assert judge(c, a, b, dtype="int8").ok
    c[8, 7] += 1
    found = judge(c, a, b, dtype="int8")
    assert (found.ok, found.wrong_count) == (False, 1)


def test_an_operand_in_the_wrong_place_fails() -> None:
    """M, N, K exchanged, or a row or a term left out, at sizes where that still has a shape."""
    a, b = numbers((24, 24), "fp32", 1), numbers((24, 24), "fp32", 2)
    x, y = wide(a, "fp32"), wide(b, "fp32")
    right = stored(x @ y, "fp32")
    assert judge(right, a, b).ok
    wrong = [x.T @ y, x @ y.T, y @ x, (x @ y).T, x[:, :23] @ y[:23], np.roll(x @ y, 1, axis=1)]
    for product in wrong:
        assert not judge(stored(product, "fp32"), a, b).ok


def test_every_candidate_of_a_sweep_has_a_poisoned_c_of_its_own() -> None:
    """One that writes nothing cannot pass with the result of the one before."""
    found = gemm_lab.sweep(
        MODES, MODE=["right", "lazy", "right"], SALT=[0, 1], shape=(9, 7, 5), backend="emulator"
    )
    assert [m.verified for m in found] == [m.config["MODE"] == "right" for m in found]
    for m in found.wrong:
        assert m.max_error is not None
        assert m.max_error.got == "nan"


def test_one_illegal_access_spoils_its_own_candidate_alone() -> None:
    found = gemm_lab.sweep(
        MODES, MODE=["right", "illegal"], SALT=[0, 1], shape=(9, 7, 5), backend="emulator"
    )
    assert len(found.right) == 2
    assert len(found.failed) == 2
    assert all("out of bounds" in (m.error or "") for m in found.failed)
