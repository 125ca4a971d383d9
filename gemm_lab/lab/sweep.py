"""sweep: one variant over values of its tunables and over shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gemm_lab.core.dtypes import Layout
from gemm_lab.core.dtypes import dtype as dtype_named
from gemm_lab.core.problem import GemmProblem
from gemm_lab.errors import UsageError
from gemm_lab.lab.api import EMULATED_SIZE, GPU_SIZE, as_shape
from gemm_lab.lab.candidates import Candidate, Planner, expand, unique
from gemm_lab.lab.engine import Keeping, execute, open_runner, station_plan
from gemm_lab.lab.measure import RunSettings
from gemm_lab.lab.prepare import Request, merge_tunables
from gemm_lab.lab.progress import Progress, progress_for
from gemm_lab.lab.results import Pruned, Results
from gemm_lab.lab.station import StationPlan
from gemm_lab.lab.workbench import BackendName, Workbench, default_workbench
from gemm_lab.variants import Variant

__all__ = ["nothing_left", "shapes_of", "sweep"]


def sweep(
    variant: str | Path | Variant,
    *,
    shape: Any = None,
    dtype: str = "fp32",
    out_dtype: str | None = None,
    layout: Layout | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    epilogue: str | None = None,
    bias: bool = False,
    arch: str | None = None,
    device: int | None = None,
    backend: BackendName = "auto",
    smem_pad_bytes: int = 0,
    specialize: bool = False,
    settings: RunSettings | None = None,
    output: str | Path | None = None,
    resume: bool = True,
    retry_failed: bool = False,
    isolate: bool | None = None,
    timeout_s: float = 120.0,
    progress: bool | Progress | None = None,
    workbench: Workbench | None = None,
    station: StationPlan | None = None,
    config: Mapping[str, Any] | None = None,
    **tunables: Any,
) -> Results:
    """Measure the product of tunables and shapes, each candidate verified on a C of its own.

    Args:
        shape: one (see api.as_shape) or a list of them; api.run's default when None.
        config, tunables: a value, a list of values, or None for what the file lists to search.
        output: a journal (JSON Lines): every measurement is on disk before it counts as done.
        resume: pass over what the journal has; with `retry_failed` not over failures.
        isolate: run candidates in a process that may die; None does so on a GPU.
        timeout_s: a candidate that shows no life for so long is killed and recorded as failed.
        progress: a bar on stderr; None shows it on a terminal only; or a Progress of your own.

    A candidate that breaks a rule is pruned before compiling (`Results.pruned` has the reasons).
    One that fails has a Measurement with `error`; the others go on. Ctrl-C returns what is done,
    with `interrupted` set.
    """
    bench = workbench or default_workbench()
    chosen = bench.variant(variant)
    support = chosen.support(dtype)
    arithmetic = dtype_named(dtype)
    configs = expand(chosen, dtype, merge_tunables(config, tunables))
    settings = settings or RunSettings()
    station = station or station_plan(
        bench, backend, lowest_arch=support.arch, arch=arch, device=device
    )
    with open_runner(station, isolate=isolate, timeout_s=timeout_s) as runner:
        default = GPU_SIZE if runner.target.backend == "gpu" else EMULATED_SIZE
        planner = Planner(target=runner.target, seed=settings.seed)
        candidates: list[Candidate] = []
        pruned: list[Pruned] = []
        for one in shapes_of(default if shape is None else shape):
            problem = GemmProblem(
                shape=one,
                dtype=arithmetic,
                out=arithmetic.out(out_dtype),
                layout=layout or support.layouts[0],
                alpha=alpha,
                beta=beta,
                epilogue=epilogue,
                bias=bias,
            )
            for config in configs:
                request = Request(
                    variant=chosen,
                    config=config,
                    arch=arch,
                    specialize=specialize,
                    smem_pad_bytes=smem_pad_bytes,
                )
                found = planner.candidate(request, problem)
                if isinstance(found, Candidate):
                    candidates.append(found)
                else:
                    pruned.append(found)
        if not candidates:
            raise nothing_left(pruned)
        return execute(
            [[c] for c in unique(candidates)],
            runner=runner,
            keeping=Keeping(
                output=None if output is None else Path(output),
                resume=resume,
                retry_failed=retry_failed,
            ),
            settings=settings,
            progress=progress_for(progress),
            pruned=pruned,
            cache=bench.cache,
        )


def shapes_of(shape: Any) -> list[Any]:
    """One shape or several: a list is several, a tuple of three or four numbers is one."""
    if isinstance(shape, list) or (
        isinstance(shape, Sequence)
        and not isinstance(shape, str)
        and not all(isinstance(x, int) for x in shape)
    ):
        return [as_shape(one) for one in shape]
    return [as_shape(shape)]


def nothing_left(pruned: Sequence[Pruned]) -> UsageError:
    """The error when every candidate was pruned: the reasons, most frequent first."""
    counts: dict[str, int] = {}
    for p in pruned:
        counts[p.reason] = counts.get(p.reason, 0) + 1
    reasons = sorted(counts.items(), key=lambda item: -item[1])
    told = "; ".join(f"{count}x {reason}" for reason, count in reasons[:3])
    return UsageError(
        f"no candidate is left of {len(pruned)}: {told}" if pruned else "there is nothing to do",
        hint="other values, another shape, dtype, layout or --arch",
    )
