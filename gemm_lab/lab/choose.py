"""Which variant to take when the caller names none."""

from __future__ import annotations

from gemm_lab.core.arch import arch_number
from gemm_lab.core.dtypes import Layout
from gemm_lab.errors import UsageError
from gemm_lab.lab.workbench import Workbench
from gemm_lab.variants import Variant

__all__ = ["choose_variant"]


def choose_variant(
    bench: Workbench, *, dtype: str, layout: Layout | None, arch: str | None
) -> Variant:
    """The highest rung that does the dtype and layout on the architecture (None: any).

    UsageError when there is none.
    """
    rungs = [v for v in bench.catalogue.ladder() if dtype in v.dtypes]
    suited = [v for v in rungs if _runs_on(v.dtypes[dtype].arch, arch)]
    exact = [v for v in suited if layout is None or layout in v.dtypes[dtype].layouts]
    for found in (exact, suited):
        if found:
            return found[-1]
    raise UsageError(
        f"no variant does {dtype} on {arch or 'any architecture'}",
        hint=f"variants for {dtype}: {', '.join(v.name for v in rungs) or 'none'}",
    )


def _runs_on(lowest: str, arch: str | None) -> bool:
    if arch is None:
        return True
    if lowest[-1].isalpha():
        return arch_number(lowest) == arch_number(arch)
    return arch_number(arch) >= arch_number(lowest)
