"""How good is automatic choice on this card, and what would be better? Needs a GPU.

    python benchmarks/choice.py --suite transformer --top 8 -o runs.jsonl
    gemm-lab results runs.jsonl --standing --suite transformer
    gemm-lab results runs.jsonl --choices gemm_lab/lab/choices

For every shape the first kernels of the choice (one, or --top) are measured in the same rounds as
the library, verified, and appended to the file, in a worker that may die. What is in the file
already is passed over, so an interrupted run goes on where it stopped. At the end stands the table
of `gemm-lab results --standing`: the geometric mean of the ratio to the library, and the worst
shapes with what holds them back.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from gemm_lab.core.dtypes import LAYOUTS
from gemm_lab.core.dtypes import dtype as dtype_named
from gemm_lab.core.problem import GemmProblem
from gemm_lab.errors import GemmLabError, UsageError
from gemm_lab.lab.bench import BENCH_SETTINGS
from gemm_lab.lab.candidates import Candidate, Planner, unique
from gemm_lab.lab.choice import Basis
from gemm_lab.lab.choose import explain
from gemm_lab.lab.engine import Keeping, execute, open_runner, station_plan
from gemm_lab.lab.prepare import Request
from gemm_lab.lab.progress import progress_for
from gemm_lab.lab.standing import standings
from gemm_lab.lab.suite import Suite, load_suite
from gemm_lab.lab.sweep import shapes_of
from gemm_lab.lab.workbench import LOWEST_USUAL_ARCH, Workbench
from gemm_lab.report.plain import render_plain
from gemm_lab.report.standing import standing_document


def problems(arguments: argparse.Namespace, suites: Sequence[Suite]) -> Iterator[GemmProblem]:
    """Every suite's shapes, and those that are named, in each dtype and layout."""
    named = [tuple(int(x) for x in text.split("x")) for text in arguments.shape]
    shapes = [s.shape for suite in suites for s in suite.shapes]
    shapes += [s for size in named for s in shapes_of(size)]
    for dtype in arguments.dtype:
        arithmetic = dtype_named(dtype)
        for layout in arguments.layout:
            if layout not in LAYOUTS:
                raise UsageError(f"unknown layout {layout!r}", hint=", ".join(LAYOUTS))
            for shape in dict.fromkeys(shapes):
                yield GemmProblem(
                    shape=shape, dtype=arithmetic, out=arithmetic.default_out, layout=layout
                )


def candidates(
    bench: Workbench, planner: Planner, problem: GemmProblem, top: int
) -> list[Candidate]:
    """The first kernels of the choice, in order; low rungs that nobody examined are left out."""
    choice = explain(
        shape=problem.shape,
        dtype=problem.dtype.name,
        layout=problem.layout,
        backend="gpu" if planner.target.backend == "gpu" else "emulator",
        workbench=bench,
    )
    tried = [a for a in choice.alternatives if a is choice.chosen or a.basis is not Basis.LADDER][
        :top
    ]
    found = []
    for rank, a in enumerate(tried):
        request = Request(variant=bench.variant(a.variant), config=a.config)
        made = planner.candidate(request, problem)
        if isinstance(made, Candidate):
            found.append(replace(made, choice_rank=rank))
        else:
            print(f"{made.problem}: {made.variant} {made.config}: {made.reason}", file=sys.stderr)
    return unique(found)


def measured(arguments: argparse.Namespace, suites: Sequence[Suite]) -> int:
    """Measure all, print how choice fares; the exit code."""
    bench = Workbench()
    plan = station_plan(
        bench, arguments.backend, lowest_arch=LOWEST_USUAL_ARCH, arch=None, device=None
    )
    with open_runner(plan, isolate=None, timeout_s=120.0) as runner:
        planner, groups = Planner(target=runner.target), []
        for problem in problems(arguments, suites):
            try:
                groups.append(candidates(bench, planner, problem, arguments.top))
            except UsageError as error:  # no variant does it
                text = f"{problem.shape} {problem.dtype.name} {problem.layout}: {error.message}"
                print(text, file=sys.stderr)
        found = execute(
            [g for g in groups if g],
            runner=runner,
            keeping=Keeping(output=arguments.output),
            settings=replace(BENCH_SETTINGS, max_seconds=arguments.max_seconds),
            progress=progress_for(True),
            cache=bench.cache,
        )
    for m in found.failed:
        print(f"{m.command}: {m.error}", file=sys.stderr)
    print(render_plain(standing_document(standings(found, suites, bench))), end="")
    return 130 if found.interrupted else 3 if found.wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--suite", action="append", default=[], help="a suite's name or file")
    parser.add_argument("--shape", action="append", default=[], help="MxNxK, or MxNxKxBATCH")
    parser.add_argument("--dtype", action="append", default=[], help="bf16 when left out")
    parser.add_argument("--layout", action="append", default=[], help="nt when left out")
    parser.add_argument("--top", type=int, default=1, help="kernels of each choice to measure")
    parser.add_argument(
        "--max-seconds", type=float, default=BENCH_SETTINGS.max_seconds,
        help="device time of one problem, at most",
    )  # fmt: skip
    parser.add_argument("--backend", default="gpu", choices=("gpu", "emulator"))
    parser.add_argument("-o", "--output", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.dtype = arguments.dtype or ["bf16"]
    arguments.layout = arguments.layout or ["nt"]
    try:
        return measured(arguments, [load_suite(name) for name in arguments.suite])
    except GemmLabError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
