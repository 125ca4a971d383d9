"""Fixed Measurements to draw."""

from __future__ import annotations

from dataclasses import replace

from gemm_lab.core.measurement import (
    Baseline,
    MaxError,
    MeasuredProblem,
    MeasuredResources,
    Measurement,
    Ratio,
    Tolerance,
)

ON_GPU = Measurement(
    command="gemm-lab run --variant shared --shape 4096x4096x4096 --backend gpu",
    variant="shared",
    source_sha256="0" * 64,
    config={"BLOCK_SIZE": 32, "SWIZZLE": True},
    problem=MeasuredProblem(
        m=4096,
        n=4096,
        k=4096,
        batch=1,
        dtype="fp16",
        out_dtype="fp32",
        layout="nt",
        alpha=1.0,
        beta=0.5,
        epilogue="relu(x)",
    ),
    backend="gpu",
    device="NVIDIA H200",
    arch="sm_90",
    verified=True,
    relative_rmse=1.25e-7,
    max_error=MaxError(index=(0, 3, 5), got=1.5, expected=1.25, bound=0.5),
    tolerance=Tolerance(value=0.5, reason="K = 4096 sums in fp32"),
    samples_ms=(12.0, 12.5, 13.0, 12.25, 12.75),
    median_ms=12.5,
    tflops=10.99511627776,
    launch_bound=False,
    baseline=Baseline(
        name="cuBLAS",
        compute_type="CUBLAS_COMPUTE_32F",
        samples_ms=(2.5, 2.5),
        median_ms=2.5,
        tflops=54.9755813888,
    ),
    ratio_to_baseline=Ratio(median=0.2, low=0.198, high=0.202),
    resources=MeasuredResources(
        registers_per_thread=40,
        static_smem_bytes=8192,
        dynamic_smem_bytes=1024,
        spill_store_bytes=0,
        spill_load_bytes=0,
        occupancy=0.75,
    ),
    cache_hit=True,
    versions={"nvrtc": "12.9.86"},
    warnings=("the card throttled: power",),
)

WRONG = replace(
    ON_GPU,
    verified=False,
    max_error=MaxError(index=(0, 1, 2), got="nan", expected=1.25, bound=0.5),
)

EMULATED = replace(
    ON_GPU,
    backend="emulator",
    device="emulator",
    samples_ms=(),
    median_ms=None,
    tflops=None,
    launch_bound=None,
    baseline=None,
    ratio_to_baseline=None,
    counters={"fma": 1234567, "global": {"load_sectors": 10, "ratio": 0.5}, "rows": [1, 2]},
    warnings=(),
)

COMPILED = replace(
    EMULATED,
    backend="none",
    device="none",
    verified=None,
    relative_rmse=None,
    max_error=None,
    tolerance=None,
    counters=None,
)
