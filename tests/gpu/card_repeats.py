"""The same product many times over: one bit pattern, or a race that the other checks did not see.

    python tests/gpu/card_repeats.py [--repeats 10000] [--variant wgmma ...]

Every rung in every dtype, and with the sum in parts where it knows SPLIT_K, at a ragged shape and
an even one. Exit code 3 when two results differ.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from itertools import product
from typing import Any

import cupy
import numpy

from gemm_lab.core.dtypes import ScalarType
from gemm_lab.core.dtypes import dtype as dtype_named
from gemm_lab.errors import GemmLabError
from gemm_lab.lab.inputs import uniform
from gemm_lab.lab.matmul import matmul
from gemm_lab.variants import Catalogue

SHAPES = [(1024, 1024, 1024), (509, 776, 1032)]


def on_the_card(shape: tuple[int, int], scalar: ScalarType, seed: int) -> Any:
    """Uniform values of a type that CuPy may not know."""
    values = uniform(shape, scalar, seed=seed)
    return cupy.asarray(values.view(numpy.uint8)).view(values.dtype)


def different(
    variant: str, dtype: str, shape: tuple[int, int, int], repeats: int, tunables: dict[str, int]
) -> int:
    """How many of the repeats differ from the first result in any bit."""
    m, n, k = shape
    kind = dtype_named(dtype).storage
    a = on_the_card((m, k), kind, seed=1)
    b = on_the_card((n, k), kind, seed=2).T
    first = matmul(a, b, dtype=dtype, variant=variant, **tunables)
    out = cupy.empty_like(first)
    words = first.view(cupy.uint8)
    count = cupy.zeros((), dtype=cupy.int64)
    for _ in range(repeats):
        out.view(cupy.uint8).fill(0xFF)
        matmul(a, b, out=out, dtype=dtype, variant=variant, **tunables)
        count += (out.view(cupy.uint8) != words).any()
    return int(count)


def main() -> int:
    """Repeat what was asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=10_000)
    parser.add_argument("--variant", action="append", help="only these")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    bad = 0
    for variant in Catalogue().ladder():
        if asked.variant and variant.name not in asked.variant:
            continue
        parts = [{}, {"SPLIT_K": 4}] if "SPLIT_K" in variant.tunables else [{}]
        for tunables, dtype, shape in product(parts, variant.dtypes, SHAPES):
            begin = time.perf_counter()
            try:
                found = different(variant.name, dtype, shape, asked.repeats, tunables)
                said = f"{found} of {asked.repeats} differ, {time.perf_counter() - begin:.1f} s"
            except GemmLabError as error:
                found, said = 1, error.message
            bad += found > 0
            print(f"{variant.name} {dtype} {shape} {tunables}: {said}")
    return 3 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
