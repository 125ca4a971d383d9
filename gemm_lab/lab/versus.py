"""versus: two kernels in the same rounds, on the same inputs, and what that says."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gemm_lab import jit
from gemm_lab.core.dtypes import Layout
from gemm_lab.core.dtypes import dtype as dtype_named
from gemm_lab.core.measurement import Measurement
from gemm_lab.core.problem import GemmProblem
from gemm_lab.errors import GemmLabError, UsageError
from gemm_lab.lab.api import GPU_SIZE
from gemm_lab.lab.candidates import Candidate, Planner
from gemm_lab.lab.compare import CONFIDENCE, Comparisons, compare_pair
from gemm_lab.lab.engine import Keeping, failure, open_runner, station_plan
from gemm_lab.lab.measure import RunSettings
from gemm_lab.lab.prepare import Request
from gemm_lab.lab.progress import Progress, progress_for
from gemm_lab.lab.results import Pruned, Results
from gemm_lab.lab.runner import Runner
from gemm_lab.lab.station import StationPlan
from gemm_lab.lab.sweep import shapes_of
from gemm_lab.lab.workbench import BackendName, Workbench, default_workbench

__all__ = ["VERSUS_SETTINGS", "Contender", "Versus", "parse_contender", "versus"]

# A fixed number of rounds: to look at the verdict and go on until it pleases would bias it.
VERSUS_SETTINGS = RunSettings(
    min_rounds=120, max_rounds=400, max_seconds=20.0, target_error=0.002, baseline=True
)
_TUNABLES = re.compile(r":((?:[A-Z][A-Z0-9_]*=[^,:=]+)(?:,[A-Z][A-Z0-9_]*=[^,:=]+)*)$")


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A variant and the tunables that are not at their defaults."""

    variant: str
    tunables: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        values = ",".join(f"{k}={v}" for k, v in self.tunables.items())
        return f"{self.variant}:{values}" if values else self.variant


@dataclass(frozen=True, kw_only=True)
class Versus:
    """The verdicts, and the measurements behind them: A and B of each problem in turn."""

    comparisons: Comparisons
    results: Results


def parse_contender(text: str) -> Contender:
    """NAME, FILE.cu.j2, or either with :BM=64,BN=128 behind it."""
    found = _TUNABLES.search(text)
    if found is None:
        return Contender(variant=text)
    pairs = (pair.split("=", 1) for pair in found[1].split(","))
    return Contender(variant=text[: found.start()], tunables=dict(pairs))


def versus(
    a: Contender,
    b: Contender,
    *,
    shape: Any = None,
    dtype: str = "fp32",
    layout: Layout | None = None,
    out_dtype: str | None = None,
    arch: str | None = None,
    device: int | None = None,
    backend: BackendName = "auto",
    margin: float | None = None,
    confidence: float = CONFIDENCE,
    settings: RunSettings | None = None,
    output: str | Path | None = None,
    isolate: bool | None = None,
    timeout_s: float = 120.0,
    progress: bool | Progress | None = None,
    workbench: Workbench | None = None,
    station: StationPlan | None = None,
) -> Versus:
    """Measure A and B interleaved on each shape and judge them pair by pair.

    A may be B: the verdict is then "same", unless the card is too noisy to say. UsageError where
    one of them cannot do a problem, or nothing can be timed.
    """
    lab = workbench or default_workbench()
    one, other = lab.variant(a.variant), lab.variant(b.variant)
    arithmetic = dtype_named(dtype)
    settings = settings or VERSUS_SETTINGS
    layout = layout or _common_layout(one.support(dtype).layouts, other.support(dtype).layouts)
    station = station or station_plan(
        lab, backend, lowest_arch=one.support(dtype).arch, arch=arch, device=device
    )
    with open_runner(station, isolate=isolate, timeout_s=timeout_s) as runner:
        if runner.target.backend != "gpu":
            raise UsageError(
                "only a GPU is timed: the emulator's time says nothing about a kernel",
                hint="compare two recorded runs: gemm-lab compare A.jsonl B.jsonl",
            )
        planner = Planner(target=runner.target, seed=settings.seed)
        pairs: list[tuple[Candidate, Candidate]] = []
        for size in shapes_of(GPU_SIZE if shape is None else shape):
            problem = GemmProblem(
                shape=size, dtype=arithmetic, out=arithmetic.out(out_dtype), layout=layout
            )
            pairs.append(
                (
                    _candidate(planner, Request.of(one, dtype, a.tunables, arch=arch), problem),
                    _candidate(planner, Request.of(other, dtype, b.tunables, arch=arch), problem),
                )
            )
        with (
            Keeping(output=None if output is None else Path(output)).open() as journal,
            progress_for(progress) as bar,
        ):
            bar.start("compiling", len(pairs) * 2)
            jit.compile_many([c.rendered for pair in pairs for c in pair], cache=lab.cache)
            bar.start("comparing", len(pairs))
            measured: list[Measurement] = []
            for pair in pairs:
                for m in _measure(runner, pair, settings, bar):
                    if journal is not None:
                        journal.append(m)
                    measured.append(m)
                bar.advance()
    name = str(a) if str(a) == str(b) else f"{a} -> {b}"
    each = 1 - (1 - confidence) / len(pairs)
    compared = [
        compare_pair(x, y, margin=margin, confidence=each, name=name)
        for x, y in zip(measured[::2], measured[1::2], strict=True)
    ]
    return Versus(
        comparisons=Comparisons(pairs=tuple(compared), only_a=0, only_b=0),
        results=Results(measured),
    )


def _candidate(planner: Planner, request: Request, problem: GemmProblem) -> Candidate:
    found = planner.candidate(request, problem)
    if isinstance(found, Pruned):
        raise UsageError(found.reason, hint=f"on {problem.shape}: other tunables or shapes")
    return found


def _measure(
    runner: Runner, pair: Sequence[Candidate], settings: RunSettings, bar: Progress
) -> list[Measurement]:
    outcomes = runner.run(pair, settings, bar.note)
    return [
        failure(c, runner.target, settings, o) if isinstance(o, GemmLabError) else o
        for c, o in zip(pair, outcomes, strict=True)
    ]


def _common_layout(a: Sequence[Layout], b: Sequence[Layout]) -> Layout:
    for layout in a:
        if layout in b:
            return layout
    raise UsageError(
        "the two have no layout in common", hint=f"A does {', '.join(a)}; B {', '.join(b)}"
    )
