"""The emulator catches kernels that are broken in one place.

A sample in the ordinary run; all of them with GEMM_LAB_ALL_MUTANTS=1.
"""

from __future__ import annotations

import functools
import os
import random

import pytest
from mutant_edits import Mutant, mutants
from mutant_equivalents import EQUIVALENT
from mutant_runner import ARCH, Subject, all_mutants, subject, try_mutant

from gemm_lab.core.problem import GemmProblem, Shape
from gemm_lab.emulator.backend import EmulatorBackend
from gemm_lab.lab.check import CheckCase, check_cases
from gemm_lab.lab.workbench import Workbench
from gemm_lab.variants import Catalogue

ALL = os.environ.get("GEMM_LAB_ALL_MUTANTS") == "1"
SAMPLE = 7
RANDOM = 100 if ALL else 20
VARIANTS = [v.name for v in Catalogue().ladder() if "fp32" in v.dtypes]


@functools.cache
def _subject(name: str) -> Subject:
    found = subject(Catalogue().get(name))
    if found is None:
        pytest.skip(f"the emulator does not run {name} yet")
    if name not in EQUIVALENT:
        pytest.skip(f"nobody has looked at the mutants of {name} yet")
    return found


def _chosen(found: Subject) -> list[tuple[Mutant, int]]:
    """One of each kind at least, and others drawn by the variant's name."""
    known = EQUIVALENT[found.variant.name]
    every = [(m, n) for m, n in all_mutants(found) if m.key not in known]
    if ALL:
        return every
    generator = random.Random(found.variant.name)
    generator.shuffle(every)
    kinds: dict[str, tuple[Mutant, int]] = {}
    # Lines of the kernel's own body come last, and tell most.
    for mutant, number in sorted(every, key=lambda pair: -pair[0].line):
        kinds.setdefault(mutant.kind, (mutant, number))
    rest = [pair for pair in every if pair not in kinds.values()]
    return [*kinds.values(), *rest][:SAMPLE]


@pytest.mark.parametrize("name", VARIANTS)
def test_every_mutant_is_caught(name: str) -> None:
    found = _subject(name)
    survivors = []
    caught = 0
    for mutant, number in _chosen(found):
        outcome = try_mutant(found, mutant, number)
        caught += outcome.kind in ("wrong", "race", "fault")
        if outcome.kind == "survived":
            survivors.append((mutant.kind, mutant.line, *mutant.key))
    assert not survivors
    assert caught > 0


@pytest.mark.parametrize("name", VARIANTS)
def test_a_missing_barrier_is_a_race(name: str) -> None:
    found = _subject(name)
    every = [(m, n) for m, n in all_mutants(found) if m.kind == "barrier removed"]
    missing = [(m, n) for m, n in every if "__sync" in m.before]
    if not missing:
        pytest.skip(f"{name} has no barrier")
    mutant, number = missing[-1]
    assert try_mutant(found, mutant, number).kind == "race"


@pytest.mark.skipif(not ALL, reason="GEMM_LAB_ALL_MUTANTS=1 tries them all")
@pytest.mark.parametrize("name", VARIANTS)
def test_the_list_of_equivalent_mutants_is_true(name: str) -> None:
    """Each still exists and still survives."""
    found = _subject(name)
    known = EQUIVALENT[name]
    there = {m.key: (m, n) for m, n in all_mutants(found)}
    assert set(known) <= set(there)
    assert [key for key in known if try_mutant(found, *there[key]).kind != "survived"] == []


@pytest.mark.parametrize("name", VARIANTS)
def test_no_finding_on_the_kernel_itself(name: str) -> None:
    """Random shapes, factors, batches and layouts; as drawn by the variant's name."""
    found = _subject(name)
    generator = random.Random(name)
    support = found.variant.support("fp32")
    cases = []
    for _ in range(RANDOM):
        shape = Shape(
            m=generator.randint(1, 70),
            n=generator.randint(1, 70),
            k=generator.randint(0, 40),
            batch=generator.choice((1, 1, 1, 2)),
        )
        problem = GemmProblem(
            shape=shape,
            dtype=support.dtype,
            out=support.dtype.default_out,
            layout=generator.choice(support.layouts),
            alpha=generator.choice((1.0, -0.5)),
            beta=generator.choice((0.0, 0.0, 2.0)),
        )
        cases.append(CheckCase(problem=problem, why="random"))
    request = found.requests[0]
    report = check_cases(Workbench(), EmulatorBackend(arch=ARCH), request, cases)
    assert report.findings == ()
    assert len(report.cases) == RANDOM


def test_the_tool_changes_what_it_says() -> None:
    source = "\n".join(
        (
            "for (int stage = 0; stage < STAGES; ++stage) {",
            "    if (row < M && col >= N) smem[stage][i] = k < K ? A[i] : 0;  // row < M",
            "    __syncthreads();",
            "    stage = stage + 1 == STAGES ? 0 : stage + 1;",
        )
    )
    made = [(m.line, m.kind, m.after.strip()) for m in mutants(source)]
    assert made == [
        (2, "guard weakened", "if (row <= M && col >= N) smem[stage][i] = k < K ? A[i] : 0;"),
        (2, "guard removed", "if (true && col >= N) smem[stage][i] = k < K ? A[i] : 0;"),
        (2, "guard weakened", "if (row < M && col > N) smem[stage][i] = k < K ? A[i] : 0;"),
        (2, "guard removed", "if (row < M && false) smem[stage][i] = k < K ? A[i] : 0;"),
        (2, "guard weakened", "if (row < M && col >= N) smem[stage][i] = k <= K ? A[i] : 0;"),
        (2, "guard removed", "if (row < M && col >= N) smem[stage][i] = true ? A[i] : 0;"),
        (
            2,
            "stage shifted",
            "if (row < M && col >= N) smem[(stage + 1) % STAGES][i] = k < K ? A[i] : 0;",
        ),
        (3, "barrier removed", ";"),
        (4, "stage not advanced", "stage += 0;"),
    ]
