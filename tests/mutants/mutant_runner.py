"""Runs a mutant over small problems until something catches it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any

from mutant_edits import Mutant, mutants
from small_tunables import small_requests

from gemm_lab import jit
from gemm_lab.core.kernel import CompiledKernel, KernelSpec, RenderedKernel
from gemm_lab.core.problem import GemmProblem, Shape
from gemm_lab.emulator import PtxError
from gemm_lab.emulator.backend import EmulatorBackend
from gemm_lab.emulator.options import Options
from gemm_lab.lab.check import CheckCase, check_cases
from gemm_lab.lab.prepare import Request
from gemm_lab.lab.trial import make_executor
from gemm_lab.lab.workbench import Workbench
from gemm_lab.variants import Variant, render

ARCH = "sm_80"
MOST_CONFIGS = 3


@dataclass(frozen=True)
class Subject:
    """A variant with some sets of tunables, and the problems that its mutants meet."""

    variant: Variant
    requests: tuple[Request, ...]
    cases: tuple[CheckCase, ...]


class MutantBench(Workbench):
    """A workbench whose kernels have one line changed."""

    def __init__(self, change: tuple[str, str] | None = None, number: int = 0) -> None:
        super().__init__()
        self.change = change
        self.number = number
        self.same = True

    def compile(self, variant: Variant, spec: KernelSpec) -> CompiledKernel:
        rendered = render(variant, spec)
        if self.change is None:
            return jit.compile_kernel(rendered)
        changed = mutated(rendered, self.change, self.number)
        if changed is None:
            return jit.compile_kernel(rendered)
        made = jit.compile_kernel(changed)
        self.same = self.same and code_of(made.ptx) == code_of(jit.compile_kernel(rendered).ptx)
        return made


def mutated(
    rendered: RenderedKernel, change: tuple[str, str], number: int
) -> RenderedKernel | None:
    """The kernel with that edit; another alignment may lack the line."""
    found = [m for m in mutants(rendered.source) if m.key == change]
    if not found:
        return None
    return replace(rendered, source=found[min(number, len(found) - 1)].source)


def code_of(ptx: str) -> list[str]:
    """Instructions alone: no line table, no comments."""
    lines = (line.partition("//")[0].strip() for line in ptx.splitlines())
    body = []
    for line in lines:
        if line.startswith(".section"):
            break
        if line and not line.startswith((".loc", ".file")):
            body.append(line)
    return body


def subject(variant: Variant) -> Subject | None:
    """None when the emulator does not run the variant, or it is none for CUDA cores."""
    if "fp32" not in variant.dtypes:
        return None
    backend = EmulatorBackend(arch=ARCH)
    try:
        requests = small_requests(variant, "fp32", backend, most=MOST_CONFIGS, arch=ARCH)
    except PtxError:
        return None
    support = variant.support("fp32")
    problem = GemmProblem(
        shape=Shape(m=1, n=1, k=1), dtype=support.dtype, out=support.dtype.default_out
    )
    made = cases(problem)
    if "tn" in support.layouts:
        # Where both operands are padded, zeros of the one hide what the other holds.
        made += tuple(
            CheckCase(problem=replace(case.problem, layout="tn"), why="") for case in made[:2]
        )
    return Subject(variant, tuple(requests), made)


def cases(problem: GemmProblem) -> tuple[CheckCase, ...]:
    """Ragged shapes with and without aligned rows; sides beyond several small tiles."""

    def case(m: int, n: int, k: int, batch: int = 1, **changes: Any) -> CheckCase:
        shape = Shape(m=m, n=n, k=k, batch=batch)
        return CheckCase(problem=replace(problem, shape=shape, **changes), why="")

    return (
        case(60, 68, 44),
        case(61, 67, 29),
        case(164, 36, 8),
        case(32, 64, 32),
        case(163, 37, 7, beta=0.5),
        case(5, 131, 17, batch=2),
        case(1, 1, 1),
        case(3, 5, 0, beta=0.5),
        case(132, 260, 40),
        case(161, 71, 16),
    )


def all_mutants(found: Subject) -> list[tuple[Mutant, int]]:
    """Mutants of the kernels for every set of tunables, for aligned and for unaligned rows, each
    once, with its number among those of the same edit."""
    counts: dict[tuple[str, str], int] = {}
    made: list[tuple[Mutant, int]] = []
    bench, backend = Workbench(), EmulatorBackend(arch=ARCH)
    for request, case in itertools.product(found.requests, found.cases[:2]):
        executor, _ = make_executor(bench, backend, request, case.problem)
        here: dict[tuple[str, str], int] = {}
        for mutant in mutants(executor.compiled.rendered.source):
            number = here.get(mutant.key, 0)
            here[mutant.key] = number + 1
            if number >= counts.get(mutant.key, 0):
                counts[mutant.key] = number + 1
                made.append((mutant, number))
    return made


@dataclass(frozen=True)
class Outcome:
    """What caught a mutant: "wrong", "race" or "fault"; "same" where its instructions are those of
    the kernel itself, "survived" when nothing caught it."""

    kind: str
    by: str = ""


def try_mutant(found: Subject, mutant: Mutant, number: int) -> Outcome:
    """Every case until one catches it."""
    same = True
    for request in found.requests:
        bench = MutantBench(mutant.key, number)
        backend = EmulatorBackend(arch=ARCH, options=Options(max_instructions=400_000))
        for case in found.cases[:2]:  # aligned rows and others: all the kernels that there are
            make_executor(bench, backend, request, case.problem)
        same = same and bench.same
        if bench.same:
            continue
        report = check_cases(bench, backend, request, found.cases, stop_at_first=True)
        if report.findings:
            first = report.findings[0]
            return Outcome(first.kind, f"{first.case}: {first.text.splitlines()[0]}")
    return Outcome("same" if same else "survived")
