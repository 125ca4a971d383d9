"""bench: variants, tunables, shapes, dtypes and layouts, beside the library in every round."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from gemm_lab.core.arch import arch_number
from gemm_lab.core.dtypes import Layout
from gemm_lab.core.dtypes import dtype as dtype_named
from gemm_lab.core.problem import GemmProblem, Shape
from gemm_lab.errors import UsageError, VariantError
from gemm_lab.lab.api import EMULATED_SIZE, GPU_SIZE
from gemm_lab.lab.candidates import Candidate, Planner, expand, unique
from gemm_lab.lab.engine import Keeping, execute, open_runner, station_plan
from gemm_lab.lab.measure import RunSettings
from gemm_lab.lab.prepare import Request
from gemm_lab.lab.progress import Progress, progress_for
from gemm_lab.lab.results import Pruned, Results
from gemm_lab.lab.station import StationPlan
from gemm_lab.lab.suite import Suite, load_suite
from gemm_lab.lab.sweep import nothing_left, shapes_of
from gemm_lab.lab.workbench import BackendName, Workbench, default_workbench
from gemm_lab.variants import Variant

__all__ = ["BENCH_SETTINGS", "bench"]

# A ratio within 1% from run to run asks for more than a glance.
BENCH_SETTINGS = RunSettings(max_seconds=10.0, min_rounds=30, max_rounds=400, target_error=0.003)
# One emulated multiply-add costs a million times a real one.
_EMULATED_LIMIT = 2 * EMULATED_SIZE**3


def bench(
    variants: Sequence[str | Path | Variant] = (),
    *,
    shape: Any = None,
    suite: str | None = None,
    dtypes: Sequence[str] = (),
    layouts: Sequence[Layout] = (),
    tunables: Mapping[str, Any] | None = None,
    out_dtype: str | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    epilogue: str | None = None,
    bias: bool = False,
    arch: str | None = None,
    device: int | None = None,
    backend: BackendName = "auto",
    settings: RunSettings | None = None,
    output: str | Path | None = None,
    resume: bool = True,
    retry_failed: bool = False,
    interleave: int = 12,
    isolate: bool | None = None,
    timeout_s: float = 120.0,
    progress: bool | Progress | None = None,
    workbench: Workbench | None = None,
    station: StationPlan | None = None,
) -> Results:
    """Measure kernels side by side: all that answer one problem, in the same rounds.

    Args:
        variants: names or files; none takes every variant of the catalogue that does the dtype
            and layout, rung by rung.
        shape, suite: shapes (see api.as_shape), or a suite's name or file; both add up.
        dtypes, layouts: the suite's, or fp32 and each variant's first, when empty.
        tunables: by name, as for sweep; a name goes to the variants that have it.
        interleave: at most so many kernels share rounds; more are split, each part with the
            library.

    The rest is as for sweep. Measurements of one `group` may be compared pair by pair.
    """
    lab = workbench or default_workbench()
    plan = _Plan.of(lab, variants, shape, suite, dtypes, layouts, dict(tunables or {}))
    settings = settings or BENCH_SETTINGS
    station = station or station_plan(
        lab, backend, lowest_arch=plan.lowest_arch(), arch=arch, device=device
    )
    with open_runner(station, isolate=isolate, timeout_s=timeout_s) as runner:
        planner = Planner(target=runner.target, seed=settings.seed)
        on_gpu = runner.target.backend == "gpu"
        groups: list[list[Candidate]] = []
        pruned: list[Pruned] = []
        for question in plan.questions(GPU_SIZE if on_gpu else EMULATED_SIZE):
            problem = GemmProblem(
                shape=question.shape,
                dtype=dtype_named(question.dtype),
                out=dtype_named(question.dtype).out(out_dtype),
                layout=question.layout,
                alpha=alpha,
                beta=beta,
                epilogue=epilogue,
                bias=bias,
            )
            found: list[Candidate] = []
            for variant in question.variants:
                for config in plan.configs(variant, question.dtype):
                    request = Request(variant=variant, config=config, arch=arch)
                    made = _plan_one(planner, request, problem, plan)
                    if isinstance(made, Candidate):
                        found.append(made)
                    else:
                        pruned.append(made)
            found = unique(found)
            size = max(interleave, 1)
            groups += [found[i : i + size] for i in range(0, len(found), size)]
        if not groups:
            raise nothing_left(pruned)
        return execute(
            groups,
            runner=runner,
            keeping=Keeping(
                output=None if output is None else Path(output),
                resume=resume,
                retry_failed=retry_failed,
            ),
            settings=settings,
            progress=progress_for(progress),
            pruned=pruned,
            cache=lab.cache,
        )


def _plan_one(
    planner: Planner, request: Request, problem: GemmProblem, plan: _Plan
) -> Candidate | Pruned:
    s = problem.shape
    work = s.m * s.n * s.k * s.batch
    reason = "a shape of the suite is too large for the emulator; --square 256 adds one that is not"
    if plan.suite is None or planner.target.backend != "emulator" or work <= _EMULATED_LIMIT:
        try:
            return planner.candidate(request, problem)
        except VariantError as error:
            if plan.named:
                raise
            reason = error.message
    return Pruned(
        variant=request.variant.name, config=dict(request.config), problem=str(s), reason=reason
    )


@dataclass(frozen=True, kw_only=True)
class _Question:
    shape: Shape
    dtype: str
    layout: Layout
    variants: tuple[Variant, ...]


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """What was asked for, resolved; shapes None are the backend's default."""

    variants: tuple[Variant, ...]
    named: bool
    suite: Suite | None
    shapes: tuple[Shape, ...] | None
    dtypes: tuple[str, ...]
    layouts: tuple[Layout, ...]
    tunables: Mapping[str, Any]

    @staticmethod
    def of(
        lab: Workbench,
        variants: Sequence[str | Path | Variant],
        shape: Any,
        suite_name: str | None,
        dtypes: Sequence[str],
        layouts: Sequence[Layout],
        tunables: Mapping[str, Any],
    ) -> _Plan:
        suite = None if suite_name is None else load_suite(suite_name)
        shapes: list[Shape] = [] if shape is None else shapes_of(shape)
        if suite is not None:
            shapes += [s.shape for s in suite.shapes]
        if not dtypes:
            dtypes = suite.dtypes if suite else ("fp32",)
        for name in dtypes:
            dtype_named(name)
        wanted_layouts = tuple(layouts or (suite.layouts if suite else ()))
        for name in wanted_layouts:
            if name not in get_args(Layout):
                raise UsageError(f"unknown layout {name!r}", hint="nn, nt, tn or tt")
        found = [lab.variant(v) for v in variants] or lab.catalogue.ladder()
        for name in tunables:
            if not any(name in v.tunables for v in found):
                raise UsageError(
                    f"no variant here has a tunable {name}", hint="`gemm-lab list` shows them"
                )
        return _Plan(
            variants=tuple(found),
            named=bool(variants),
            suite=suite,
            shapes=tuple(dict.fromkeys(shapes)) or None,
            dtypes=tuple(dict.fromkeys(dtypes)),
            layouts=wanted_layouts,  # type: ignore[arg-type]
            tunables=tunables,
        )

    def lowest_arch(self) -> str:
        """The highest of what the named variants need; all can then run."""
        archs = [v.dtypes[d].arch for v in self.variants for d in self.dtypes if d in v.dtypes]
        if not archs:
            raise UsageError(
                f"no variant does {', '.join(self.dtypes)}", hint="`gemm-lab list` shows dtypes"
            )
        return max(archs, key=lambda a: (arch_number(a), a)) if self.named else "sm_80"

    def questions(self, default_size: int) -> Iterator[_Question]:
        """Every problem with the variants that can do it."""
        size = default_size
        for dtype in self.dtypes:
            able = [v for v in self.variants if dtype in v.dtypes]
            if self.named and len(able) < len(self.variants):
                missing = next(v for v in self.variants if dtype not in v.dtypes)
                missing.support(dtype)
            for layout in self.layouts or _first_layouts(able, dtype):
                users = tuple(v for v in able if layout in v.dtypes[dtype].layouts)
                for shape in self.shapes or (Shape(m=size, n=size, k=size),):
                    yield _Question(shape=shape, dtype=dtype, layout=layout, variants=users)

    def configs(self, variant: Variant, dtype: str) -> Sequence[Any]:
        """The product of the tunables that this variant has."""
        own = {name: v for name, v in self.tunables.items() if name in variant.tunables}
        return expand(variant, dtype, own)


def _first_layouts(variants: Sequence[Variant], dtype: str) -> tuple[Layout, ...]:
    """The layout that most have, so that they can be compared."""
    counts: dict[Layout, int] = {}
    for v in variants:
        for layout in v.dtypes[dtype].layouts:
            counts[layout] = counts.get(layout, 0) + 1
    return (max(counts, key=lambda x: counts[x]),) if counts else ()
