"""Host time of one warm call on 16x16 arrays: ours beside CuPy's, in one run.

    python benchmarks/host_cost.py [--out FILE.json]

Each figure is the time until the call returns, its work queued; rounds are interleaved and
shuffled, the device is drained between them.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gemm_lab.core.backend import Pointer, Scalar
from gemm_lab.core.kernel import KernelLaunch, RenderedKernel
from gemm_lab.errors import GemmLabError
from gemm_lab.gpu import GpuBackend
from gemm_lab.jit import compile_kernel

SIZE = 16
CALLS = 200
ROUNDS = 60
TARGET_US = {"gemm_lab.matmul(a, b, out=c)": 12.0}
SOURCE = """
extern "C" __global__ void gemm16(int M, int N, int K, float alpha, const float* A, long long lda,
                                  const float* B, long long ldb, float beta, float* C,
                                  long long ldc) {
    int row = threadIdx.y, col = threadIdx.x;
    float acc = 0.0f;
    for (int k = 0; k < K; ++k) acc += A[row * lda + k] * B[k * ldb + col];
    C[row * ldc + col] = alpha * acc + (beta == 0.0f ? 0.0f : beta * C[row * ldc + col]);
}
"""
PARAMS = ("M", "N", "K", "alpha", "A", "lda", "B", "ldb", "beta", "C", "ldc")


def calls(backend: GpuBackend) -> dict[str, Callable[[], Any]]:
    """Each way to multiply, by name."""
    import cupy
    import numpy

    a, b, c = (cupy.ones((SIZE, SIZE), numpy.float32) for _ in range(3))
    rendered = RenderedKernel(name="gemm16", source=SOURCE, entries=("gemm16",), arch=backend.arch)
    compiled = compile_kernel(rendered)
    raw = cupy.RawModule(path=str(compiled.cubin_path)).get_function("gemm16")
    n32, n64, f32 = numpy.int32(SIZE), numpy.int64(SIZE), numpy.float32
    arguments = (n32, n32, n32, f32(1), a, n64, b, n64, f32(0), c, n64)
    grid, block = (1, 1, 1), (SIZE, SIZE, 1)
    size, step = Scalar("int", SIZE), Scalar("long long", SIZE)
    prepared = backend.prepare(
        backend.load(compiled),
        KernelLaunch(entry="gemm16", grid=grid, block=block, smem_bytes=0, params=PARAMS),
        [
            *(size, size, size, Scalar("float", 1.0), Pointer(0), step),
            *(Pointer(0), step, Scalar("float", 0.0), Pointer(0), step),
        ],
    )
    launch = prepared.launch
    addresses = (a.data.ptr, b.data.ptr, c.data.ptr)
    stream = cupy.cuda.get_current_stream().ptr
    found: dict[str, Callable[[], Any]] = {
        "RawKernel(grid, block, args)": lambda: raw(grid, block, arguments),
        "prepared.launch(addresses)": lambda: launch(addresses),
        "prepared.launch(addresses, stream)": lambda: launch(addresses, stream),
    }
    try:
        cupy.matmul(a, b, out=c)
        found["cupy.matmul(a, b, out=c)"] = lambda: cupy.matmul(a, b, out=c)
    except ImportError as missing:
        print(f"cupy.matmul is left out: {missing}", file=sys.stderr)
    import gemm_lab

    matmul = getattr(gemm_lab, "matmul", None)
    if matmul is None:
        print("gemm_lab.matmul is left out: it does not exist", file=sys.stderr)
    else:
        found["gemm_lab.matmul(a, b, out=c)"] = lambda: matmul(a, b, out=c)
        found["gemm_lab.matmul(..., SPLIT_K=2)"] = lambda: matmul(
            a, b, out=c, variant="simt_async", SPLIT_K=2
        )
    return found


def measure(found: dict[str, Callable[[], Any]], drain: Callable[[], None]) -> dict[str, Any]:
    """Microseconds a call, a sample a round."""
    samples: dict[str, list[float]] = {name: [] for name in found}
    for call in found.values():
        for _ in range(50):
            call()
    order = list(found)
    shuffle = random.Random(0).shuffle
    for _ in range(ROUNDS):
        shuffle(order)
        for name in order:
            call = found[name]
            drain()
            start = time.perf_counter()
            for _ in range(CALLS):
                call()
            samples[name].append((time.perf_counter() - start) * 1e6 / CALLS)
    drain()
    return {
        name: {
            "median_us": statistics.median(us),
            "min_us": min(us),
            "samples_us": us,
            "target_us": TARGET_US.get(name),
        }
        for name, us in samples.items()
    }


def main() -> int:
    """Print the table, write the record; 7 when a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, help="where the record goes, as JSON")
    options = parser.parse_args()
    try:
        backend = GpuBackend()
    except GemmLabError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    results = measure(calls(backend), backend.synchronize)
    missed = False
    for name, result in results.items():
        target = result["target_us"]
        note = "" if target is None else f"  (at most {target:g})"
        missed |= target is not None and result["median_us"] > target
        print(f"{name:36} {result['median_us']:7.2f} us, best {result['min_us']:7.2f}{note}")
    if options.out:
        import cupy

        record = {
            "schema": 1,
            "command": "python benchmarks/host_cost.py",
            "device": backend.device_name,
            "arch": backend.arch,
            "versions": {
                "python": platform.python_version(),
                "cupy": cupy.__version__,
                "cuda_driver": backend.info.driver_cuda,
                "cuda_runtime": backend.info.runtime_cuda,
            },
            "calls_per_sample": CALLS,
            "shape": [SIZE, SIZE, SIZE],
            "results": results,
        }
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(record, indent=1, allow_nan=False) + "\n")
    return 7 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
