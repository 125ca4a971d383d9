"""check: a kernel under every detector of the emulator, on small ragged problems."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from gemm_lab.core.dtypes import Layout
from gemm_lab.core.problem import GemmProblem, Shape
from gemm_lab.emulator import EmulatorFault, LaunchFault, PtxError
from gemm_lab.errors import ResourceError, RuleError, UsageError
from gemm_lab.lab.findings import race_texts, watching
from gemm_lab.lab.prepare import Request
from gemm_lab.lab.trial import make_executor, make_trial
from gemm_lab.lab.verify import Verdict
from gemm_lab.lab.workbench import Workbench, choose_arch
from gemm_lab.variants import Variant

__all__ = ["CheckCase", "CheckFinding", "CheckReport", "check_problems", "check_variant"]

FindingKind = Literal["wrong", "race", "fault"]
Progress = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class CheckCase:
    """One problem and why it is among them."""

    problem: GemmProblem
    why: str

    def __str__(self) -> str:
        p = self.problem
        words = [str(p.shape), p.dtype.name, p.layout]
        words += [f"alpha {p.alpha:g}"] if p.alpha != 1 else []
        words += [f"beta {p.beta:g}"] if p.beta != 0 else []
        words += [f"epilogue {p.epilogue}"] if p.epilogue else []
        words += ["bias"] if p.bias else []
        return " ".join(words)


@dataclass(frozen=True, kw_only=True)
class CheckFinding:
    """Something that a kernel did wrong; `text` names CUDA source lines where there are any."""

    kind: FindingKind
    case: str
    text: str


@dataclass(frozen=True, kw_only=True)
class CheckReport:
    """What became of every case.

    Attributes:
        cases: those that ran. skipped: those that the kernel refuses, with its reason.
    """

    variant: str
    config: Mapping[str, Any]
    arch: str
    cases: tuple[str, ...]
    findings: tuple[CheckFinding, ...]
    skipped: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Nothing found, and something ran."""
        return not self.findings and bool(self.cases)

    @property
    def exit_code(self) -> int:
        """0, 6 for a fault, 3 for a wrong result or a race."""
        kinds = {finding.kind for finding in self.findings}
        return 6 if "fault" in kinds else 3 if kinds else 0


def check_variant(
    bench: Workbench,
    variant: Variant,
    *,
    dtype: str = "fp32",
    out_dtype: str | None = None,
    layout: Layout | None = None,
    tunables: Mapping[str, Any] | None = None,
    arch: str | None = None,
    shapes: Sequence[Shape] = (),
    epilogue: str | None = None,
    bias: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
) -> CheckReport:
    """Run a variant on the emulator over small problems and look for everything it can find.

    Args:
        layout: this one alone; all that the variant does when None.
        shapes: these instead of the lab's; layouts, factors and batches are then left alone.
        epilogue, bias: with every case; without them one case has an epilogue of its own.

    UsageError, RuleError: tunables that cannot be. PtxError: instructions that the emulator does
    not know.
    """
    support = variant.support(dtype)
    request = Request.of(variant, dtype, tunables or {}, arch=arch)
    problem = GemmProblem(
        shape=Shape(m=1, n=1, k=1),
        dtype=support.dtype,
        out=support.dtype.out(out_dtype),
        layout=layout or support.layouts[0],
        epilogue=epilogue,
        bias=bias,
    )
    if shapes:
        cases = [CheckCase(problem=replace(problem, shape=s), why="asked for") for s in shapes]
    else:
        cases = check_problems(problem, () if layout else support.layouts)
    backend = bench.emulator(choose_arch(support.arch, arch, None))
    return check_cases(bench, backend, request, cases, seed=seed, progress=progress)


def check_problems(problem: GemmProblem, layouts: Sequence[Layout]) -> list[CheckCase]:
    """Small problems, sides distinct primes and beyond a tile, in every layout given."""

    def case(why: str, m: int, n: int, k: int, batch: int = 1, **changes: Any) -> CheckCase:
        shape = Shape(m=m, n=n, k=k, batch=batch)
        return CheckCase(problem=replace(problem, shape=shape, **changes), why=why)

    cases = [
        case("ragged in every direction", 131, 137, 67),
        case("several turns of K, factors", 37, 29, 101, alpha=1.5, beta=-0.5),
        case("rows of whole vectors", 132, 68, 36),
        case("one tile", 128, 128, 32),
        case("one element", 1, 1, 1),
        case("a column, K below a tile", 61, 1, 3),
        case("a row, an even count of tiles", 1, 73, 64),
        case("nothing to sum", 13, 17, 0, beta=0.5),
        case("a batch", 19, 23, 29, batch=3, beta=1.0),
    ]
    if problem.epilogue is None and not problem.bias and problem.out.unit_roundoff > 0:
        cases.append(case("epilogue and bias", 31, 41, 11, epilogue="relu(x + bias)", bias=True))
    for layout in layouts:
        if layout != problem.layout:
            cases.append(case(f"layout {layout}", 71, 83, 43, layout=layout))
            cases.append(case(f"layout {layout}, whole vectors", 72, 84, 44, layout=layout))
    return cases


def check_cases(
    bench: Workbench,
    backend: Any,
    request: Request,
    cases: Sequence[CheckCase],
    *,
    seed: int = 0,
    progress: Progress | None = None,
    stop_at_first: bool = False,
) -> CheckReport:
    """Each case on an emulator backend with every detector on all blocks."""
    ran: list[str] = []
    skipped: list[str] = []
    findings: list[CheckFinding] = []
    refused: UsageError | ResourceError | None = None
    for number, case in enumerate(cases, 1):
        if progress is not None:
            progress(f"case {number} of {len(cases)}: {case}")
        try:
            findings += _check(bench, backend, request, case, seed)
        except (RuleError, ResourceError, UsageError) as error:
            refused = refused or error
            skipped.append(f"{case}: {error.message}")
            continue
        ran.append(str(case))
        if findings and stop_at_first:
            break
    if refused is not None and not ran:
        raise refused
    return CheckReport(
        variant=request.variant.name,
        config=dict(request.config),
        arch=backend.arch,
        cases=tuple(ran),
        findings=tuple(findings),
        skipped=tuple(skipped),
    )


def _check(
    bench: Workbench, backend: Any, request: Request, case: CheckCase, seed: int
) -> list[CheckFinding]:
    executor, _ = make_executor(bench, backend, request, case.problem)
    trial = make_trial(backend, executor, case.problem, seed=seed)
    found: list[CheckFinding] = []
    try:
        with watching(backend, races="all") as reports:
            try:
                verdict = trial.check()
            except (PtxError, LaunchFault):
                raise
            except EmulatorFault as fault:
                found.append(CheckFinding(kind="fault", case=str(case), text=fault.message))
            else:
                if not verdict.ok:
                    found.append(CheckFinding(kind="wrong", case=str(case), text=_wrong(verdict)))
            found += [
                CheckFinding(kind="race", case=str(case), text=text) for text in race_texts(reports)
            ]
    finally:
        trial.free()
    return found


def _wrong(verdict: Verdict) -> str:
    text = f"{verdict.wrong_count} elements are wrong"
    worst = verdict.max_error
    if worst is not None:
        place = ", ".join(map(str, worst.index))
        text += (
            f", as C[{place}] = {worst.got}, expected {worst.expected}, allowed error {worst.bound}"
        )
    return text
