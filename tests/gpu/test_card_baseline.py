"""cuBLAS and cuBLASLt against NumPy in float64, every layout and arithmetic."""

from __future__ import annotations

import importlib.util
import itertools
from typing import Any

import numpy as np
import pytest
from gpu_helpers import decode, encode

from gemm_lab.core.dtypes import DTYPES, LAYOUTS, Layout, dtype
from gemm_lab.core.problem import GemmProblem, Shape, Strides
from gemm_lab.gpu import GpuBackend
from gemm_lab.gpu.baseline import Baseline, GemmBuffers, baselines, best_baseline
from gemm_lab.gpu.stopwatch import CudaStopwatch

pytestmark = pytest.mark.gpu

# Of |A||B|: several times what the arithmetic may lose at K of some hundreds.
LIMITS = {
    "fp32": 1e-6,
    "fp32x3": 1e-6,
    "tf32": 2e-3,
    "fp16": 2e-3,
    "bf16": 1e-2,
    "fp8_e4m3": 2e-2,
    "int8": 0.0,
}


@pytest.fixture(scope="module")
def backend() -> GpuBackend:
    return GpuBackend()


def candidates(
    backend: GpuBackend,
    name: str,
    layout: Layout,
    shape: Shape,
    *,
    out: str | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    pad: int = 0,
    epilogue: str | None = None,
    bias: bool = False,
) -> Any:
    """(problem, candidates, a function that runs one and gives its error over |A||B|)."""
    arithmetic = dtype(name)
    problem = GemmProblem(
        shape=shape,
        dtype=arithmetic,
        out=arithmetic.out(out),
        layout=layout,
        alpha=alpha,
        beta=beta,
        epilogue=epilogue,
        bias=bias,
    )
    tight = problem.packed_strides()
    lda, ldb, ldc = tight.lda + pad, tight.ldb + pad, tight.ldc + pad
    a_shape = (shape.m if layout[0] == "n" else shape.k, lda)
    b_shape = (shape.k if layout[1] == "n" else shape.n, ldb)
    c_shape = (shape.m, ldc)
    strides = Strides(
        lda=lda,
        ldb=ldb,
        ldc=ldc,
        stride_a=a_shape[0] * lda,
        stride_b=b_shape[0] * ldb,
        stride_c=shape.m * ldc,
    )
    random = np.random.default_rng(11)

    def made(of: tuple[int, int], scalar: str) -> np.ndarray[Any, Any]:
        values = random.uniform(-1, 1, size=(shape.batch, *of))
        if scalar in ("int8", "int32"):
            values = np.round(values * 100)
        return encode(values, scalar)

    storage = arithmetic.storage.name
    a, b, c = made(a_shape, storage), made(b_shape, storage), made(c_shape, problem.out.name)
    row = encode(random.uniform(-1, 1, size=shape.n), problem.out.name)
    a_at, b_at, c_at, row_at = (backend.upload(x) for x in (a, b, c, row))
    found = baselines(
        problem,
        strides,
        [GemmBuffers(a=a_at.address, b=b_at.address, c=c_at.address, bias=row_at.address)],
        device=backend.device,
    )

    def left_right(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> Any:
        x = x[:, :, : shape.k] if layout[0] == "n" else x[:, :, : shape.m].swapaxes(1, 2)
        y = y[:, :, : shape.n] if layout[1] == "n" else y[:, :, : shape.k].swapaxes(1, 2)
        return x, y

    x, y = left_right(decode(a, storage), decode(b, storage))
    old = decode(c, problem.out.name)[:, :, : shape.n]
    expected = alpha * (x @ y) + (beta * old if beta else 0)
    if bias:
        expected = expected + decode(row, problem.out.name)
    if epilogue == "relu":
        expected = np.maximum(expected, 0)
    scale = abs(alpha) * (np.abs(x) @ np.abs(y)) + abs(beta) * np.abs(old) + 1.0

    def error(candidate: Baseline) -> float:
        fresh = c if beta else np.full_like(c, -1)
        backend.write(c_at, fresh)
        candidate.run(0)
        backend.synchronize()
        got_all = backend.download(c_at, problem.out.numpy(), fresh.shape)
        got = decode(got_all, problem.out.name)[:, :, : shape.n]
        np.testing.assert_array_equal(got_all[:, :, shape.n :], fresh[:, :, shape.n :])
        return float(np.max(np.abs(got - expected) / scale))

    keep = (a_at, b_at, c_at, row_at)
    return problem, found, error, keep


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", DTYPES)
def test_right_in_every_layout(backend: GpuBackend, name: str, layout: Layout) -> None:
    if name == "fp8_e4m3" and (layout != "nt" or backend.info.arch < "sm_89"):
        pytest.skip("fp8 is offered for nt on sm_89 and later")
    shape = Shape(m=64, n=96, k=160)
    _, found, error, _ = candidates(backend, name, layout, shape)
    if name == "fp8_e4m3" and importlib.util.find_spec("nvmath") is None:
        assert "gemm-lab[cublas]" in found.missing[0]
        pytest.skip("fp8 needs nvmath-python")
    assert found.candidates, found.missing
    for candidate in found.candidates:
        assert error(candidate) <= LIMITS[name], candidate.name


@pytest.mark.parametrize(
    ("name", "out"), [("fp16", "fp32"), ("bf16", "fp32"), ("int8", "fp32"), ("fp8_e4m3", "fp32")]
)
def test_other_outputs(backend: GpuBackend, name: str, out: str) -> None:
    _, found, error, _ = candidates(backend, name, "nt", Shape(m=64, n=96, k=160), out=out)
    for candidate in found.candidates:
        assert error(candidate) <= max(LIMITS[name], 1e-6), candidate.name


@pytest.mark.parametrize("layout", LAYOUTS)
def test_ragged_padded_scaled_batched(backend: GpuBackend, layout: Layout) -> None:
    for shape, pad in itertools.product(
        (Shape(m=37, n=53, k=71), Shape(m=17, n=29, k=41, batch=3)), (0, 3)
    ):
        _, found, error, _ = candidates(
            backend, "fp32", layout, shape, alpha=1.5, beta=-0.5, pad=pad
        )
        assert found.candidates
        for candidate in found.candidates:
            assert error(candidate) <= LIMITS["fp32"], (candidate.name, shape, pad)


def test_fp32_uses_no_tf32(backend: GpuBackend) -> None:
    """A tf32 product of these numbers is wrong by far more than fp32 allows."""
    shape = Shape(m=256, n=256, k=1024)
    _, exact, error, _ = candidates(backend, "fp32", "nn", shape)
    assert all(error(c) < 1e-6 for c in exact.candidates)
    _, coarse, error, _ = candidates(backend, "tf32", "nn", shape)
    assert all(error(c) > 1e-6 for c in coarse.candidates)


@pytest.mark.parametrize(("epilogue", "bias"), [("relu", False), (None, True), ("relu", True)])
def test_epilogues(backend: GpuBackend, epilogue: str | None, bias: bool) -> None:
    _, found, error, _ = candidates(
        backend, "fp16", "nn", Shape(m=64, n=96, k=160), epilogue=epilogue, bias=bias
    )
    for candidate in found.candidates:
        if candidate.note != "without the epilogue":
            assert error(candidate) <= LIMITS["fp16"], candidate.name


def test_best_of_them(backend: GpuBackend) -> None:
    _, found, _, _ = candidates(backend, "fp32", "nn", Shape(m=512, n=512, k=512))
    stopwatch = CudaStopwatch(backend.device)
    best = best_baseline(found.candidates, stopwatch.median_ms)
    assert best in found.candidates


def test_candidates_can_be_captured(backend: GpuBackend) -> None:
    _, found, _, _ = candidates(backend, "fp32", "nn", Shape(m=64, n=64, k=64))
    stopwatch = CudaStopwatch(backend.device)
    for candidate in found.candidates:
        stopwatch.time_chunk([lambda c=candidate: c.run(0)])
        graph = stopwatch.graph([lambda c=candidate: c.run(0)] * 20)
        assert graph is not None, candidate.name
        assert stopwatch.time_chunk([graph])[0] > 0
