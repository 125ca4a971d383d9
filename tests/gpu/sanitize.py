"""Every rung once at ragged shapes, to be run under compute-sanitizer.

    compute-sanitizer --tool memcheck python tests/gpu/sanitize.py
    compute-sanitizer --tool racecheck python tests/gpu/sanitize.py --fp32     # or --tensor
    compute-sanitizer --tool memcheck python tests/gpu/sanitize.py --plant bounds   # must report
    compute-sanitizer --tool racecheck python tests/gpu/sanitize.py --plant race    # must report

Exit code 3 when a product is wrong. `--plant` runs a kernel with a fault of that kind instead, to
see the tool find one.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from gemm_lab.errors import UsageError
from gemm_lab.lab.api import run
from gemm_lab.lab.measure import RunSettings
from gemm_lab.variants import Catalogue

SHAPES = ((131, 77, 53), (64, 136, 72))
PLANTED = """/*---
title = "A planted fault"
idea  = "Writes out of bounds, or leaves a barrier out."
[dtype.fp32]
[tunables.KIND]
default = "bounds"
choices = ["bounds", "race"]
doc = "which fault"
[launch]
grid  = ["ceil_div(M, 32) * ceil_div(N, 32)"]
block = [32, 32]
---*/
extern "C" __global__ void ${entry}(${params}) {
    __shared__ float tile[32][33];
    const int tiles = (N + 31) / 32;
    const int row = blockIdx.x / tiles * 32 + threadIdx.y;
    const int col = blockIdx.x % tiles * 32 + threadIdx.x;
    float acc = 0;
    for (int k = 0; k < K; ++k) {
        const bool inside = row < M && col < N;
        tile[threadIdx.y][threadIdx.x] = inside ? A[row * lda + k] * B[k * ldb + col] : 0;
//% if KIND == "bounds"
        __syncthreads();
//% endif
        acc += tile[threadIdx.y ^ 1][threadIdx.x];
//% if KIND == "bounds"
        __syncthreads();
//% endif
    }
//% if KIND == "bounds"
    C[(row + M) * ldc + col + (1 << 20)] = acc;
//% else
    if (row < M && col < N) C[row * ldc + col] = acc;
//% endif
}
"""


def plant(kind: str) -> None:
    """Run the faulty kernel; the tool says what it sees."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "planted.cu.j2"
        path.write_text(PLANTED)
        settings = RunSettings(verify=False, time=False)
        run(str(path), shape=(64, 64, 8), backend="gpu", settings=settings, KIND=kind)


def main() -> int:
    """Run what was asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plant", choices=["bounds", "race"])
    parser.add_argument("--fp32", action="store_true", help="only products in fp32")
    parser.add_argument("--tensor", action="store_true", help="only the tensor-core rungs' types")
    asked = parser.parse_args()
    if asked.plant:
        try:
            plant(asked.plant)
        except Exception as fault:  # the tool may break the launch off
            print(f"planted {asked.plant}: {type(fault).__name__}")
        return 0
    wrong = 0
    for variant in Catalogue().ladder():
        for dtype in variant.dtypes:
            if (asked.fp32 and dtype != "fp32") or (asked.tensor and dtype == "fp32"):
                continue
            for shape in SHAPES:
                try:
                    found = run(
                        variant, shape=shape, dtype=dtype, beta=0.5, backend="gpu",
                        settings=RunSettings(time=False),
                    )  # fmt: skip
                except UsageError as error:
                    print(f"{variant.name} {dtype} {shape}: not here: {error.message}")
                    continue
                wrong += not found.verified
                print(f"{variant.name} {dtype} {shape}: {'right' if found.verified else 'WRONG'}")
    return 3 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
