"""Small tiles: they compile fast, and a small problem has many of them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from gemm_lab.core.problem import GemmProblem, Layout, Shape
from gemm_lab.errors import ResourceError, UsageError
from gemm_lab.lab.prepare import Request, build_executor
from gemm_lab.lab.trial import make_executor
from gemm_lab.lab.workbench import Workbench
from gemm_lab.variants import Variant

# By name of tunable: a variant takes the sets of which it has the most, as far as they keep its
# rules.
_WARPS = {"BM": 32, "BN": 64, "WM": 32, "WN": 32, "TM": 8, "TN": 4, "GROUP_M": 2}
SMALL: tuple[Mapping[str, int], ...] = (
    {**_WARPS, "BK": 8, "STAGES": 2, "SPLIT_K": 1, "PAD": 4},
    {**_WARPS, "BK": 6, "STAGES": 3, "SPLIT_K": 1, "PAD": 4},
    {**_WARPS, "BK": 8, "STAGES": 1, "PAD": 4},
    {**_WARPS, "BM": 64, "WN": 64, "TN": 8, "BK": 8, "STAGES": 3, "PAD": 4},
    {**_WARPS, "BK": 5, "STAGES": 2, "SPLIT_K": 3, "PAD": 0},
    {"BLOCK_SIZE": 32, "TILE": 4, "BK": 8},
    {"BLOCK_SIZE": 24, "TILE": 2, "BK": 5},
    {"BLOCK_SIZE": 16},
    {},
)

# For the tensor cores; BK is as many elements as 64 or 128 bytes hold.
TENSOR: tuple[Mapping[str, int], ...] = (
    {"BM": 32, "BN": 64, "WM": 16, "WN": 32, "STAGES": 2, "PRODUCER_WARPS": 1, "GROUP_M": 2},
    {"BM": 64, "BN": 64, "STAGES": 2, "CONSUMERS": 1, "CLUSTER_M": 1, "GROUP_M": 2},
    {},
)


def small_requests(
    variant: Variant, dtype: str, backend: Any, *, most: int, arch: str | None = None
) -> list[Request]:
    """Up to `most` of the sets; PtxError when the emulator does not run the variant."""
    support = variant.support(dtype)
    problem = GemmProblem(
        shape=Shape(m=8, n=8, k=8),
        dtype=support.dtype,
        out=support.dtype.default_out,
        layout=support.layouts[0],
    )
    found: list[Request] = []
    for small in sorted(SMALL, key=lambda s: -len(set(s) & set(variant.tunables))):
        known = {k: v for k, v in small.items() if k in variant.tunables}
        if found and len(known) < len(found[0].config) / 2:
            break
        try:
            request = Request.of(variant, dtype, known, arch=arch)
            strides = problem.packed_strides()
            build_executor(Workbench(), backend, request, problem, strides, (0, 0, 0))
        except (UsageError, ResourceError):
            continue
        found.append(request)
        if len(found) == most:
            break
    return found


def tensor_request(
    bench: Workbench, variant: Variant, dtype: str, layout: Layout, backend: Any
) -> Request:
    """The first set that keeps the rules of a variant for tensor cores."""
    support = variant.support(dtype)
    problem = GemmProblem(
        shape=Shape(m=8, n=8, k=8), dtype=support.dtype, out=support.dtype.default_out,
        layout=layout,
    )  # fmt: skip
    why: Exception | None = None
    for small, line_bytes in itertools.product(TENSOR, (64, 128)):
        config = {**small, "BK": line_bytes // support.dtype.storage.size_bytes} if small else {}
        known = {k: v for k, v in config.items() if k in variant.tunables}
        try:
            request = Request.of(variant, dtype, known)
            make_executor(bench, backend, request, problem)
        except (UsageError, ResourceError) as error:
            why = error
            continue
        return request
    raise AssertionError(f"{variant.name} takes none of the small sets: {why}")
