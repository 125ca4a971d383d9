"""Small tiles: they compile fast, and a small problem has many of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gemm_lab.core.problem import GemmProblem, Shape
from gemm_lab.errors import ResourceError, RuleError
from gemm_lab.lab.prepare import Request, build_executor
from gemm_lab.lab.workbench import Workbench
from gemm_lab.variants import Variant

# By name of tunable: a variant takes the sets of which it has the most, as far as they keep its
# rules.
SMALL: tuple[Mapping[str, int], ...] = (
    {"BM": 32, "BN": 64, "BK": 8, "WM": 32, "WN": 32, "TM": 8, "TN": 4, "STAGES": 2, "GROUP_M": 2},
    {"BM": 32, "BN": 64, "BK": 6, "WM": 32, "WN": 32, "TM": 8, "TN": 4, "STAGES": 3, "GROUP_M": 2},
    {"BM": 32, "BN": 64, "BK": 8, "WM": 32, "WN": 32, "TM": 8, "TN": 4, "STAGES": 1, "GROUP_M": 2},
    {"BM": 64, "BN": 64, "BK": 8, "WM": 32, "WN": 64, "TM": 8, "TN": 8, "STAGES": 3, "GROUP_M": 2},
    {"BLOCK_SIZE": 32, "TILE": 4, "BK": 8},
    {"BLOCK_SIZE": 24, "TILE": 2, "BK": 5},
    {"BLOCK_SIZE": 16},
    {},
)

# Variants that the emulator runs and faults, and why their tests wait.
WAITING = {
    "simt_async": "reads fragments of a stage that was never filled, behind the last tile of K",
}


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
        request = Request.of(variant, dtype, known, arch=arch)
        strides = problem.packed_strides()
        try:
            build_executor(Workbench(), backend, request, problem, strides, (0, 0, 0))
        except (RuleError, ResourceError):
            continue
        found.append(request)
        if len(found) == most:
            break
    return found
