"""matmul called again and again on a real card."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gemm_lab
from gemm_lab.lab import execute, prepare
from gemm_lab.lab import matmul as matmul_module

pytestmark = pytest.mark.gpu

CALLS: dict[str, dict[str, Any]] = {
    "single": {"variant": "naive"},
    "tunables": {"variant": "simt_async", "SPLIT_K": 1},
    "split": {"variant": "simt_async", "SPLIT_K": 4},
    "config": {"variant": "simt_async", "config": {"SPLIT_K": 4}},
}


def refuse(*_: Any, **__: Any) -> None:
    raise AssertionError("made ready a second time")


def numbers(*shape: int, seed: int) -> Any:
    import cupy

    return cupy.asarray(np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32))


@pytest.mark.filterwarnings("ignore::gemm_lab.CopyWarning")
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("strided", [False, True])
def test_a_second_call_makes_nothing_ready(
    monkeypatch: pytest.MonkeyPatch, name: str, with_bias: bool, strided: bool
) -> None:
    import cupy

    for seed in (1, 5, 9):
        a, b, c = (numbers(n, m, seed=seed) for n, m in ((72, 64), (64, 80), (72, 80)))
        a = a[:, ::2] if strided else a[:, :32]
        b = b[:32]
        bias = numbers(80, seed=seed + 1) if with_bias else None
        stream = cupy.cuda.Stream(non_blocking=True)
        cupy.cuda.Device().synchronize()
        with stream:
            gemm_lab.matmul(a, b, out=c, bias=bias, **CALLS[name])
        stream.synchronize()
        expected = cupy.asnumpy(a) @ cupy.asnumpy(b)
        expected += 0 if bias is None else cupy.asnumpy(bias)
        np.testing.assert_array_equal(cupy.asnumpy(c), expected)
        for module in (prepare, execute):
            monkeypatch.setattr(module, "plan", refuse)
        if with_bias or strided or name == "config":
            continue
        monkeypatch.setattr(matmul_module, "Call", refuse)
