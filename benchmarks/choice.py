"""How good is automatic choice on this card, and what would be better? Needs a GPU.

    python benchmarks/choice.py --suite transformer --dtype bf16 --layout nt -o runs.jsonl
    python benchmarks/choice.py --suite squares --top 8 -o candidates.jsonl
    gemm-lab results candidates.jsonl --choices gemm_lab/lab/choices

For every shape the first kernels of the choice (one, or --top) are measured in the same rounds as
the library, verified, and appended to the file. Problems that are in the file already are passed
over, so an interrupted run goes on where it stopped. At the end: the geometric mean of the ratio to
the library and the ten worst, of what choice took and of the best that was tried.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from math import exp, log
from pathlib import Path
from typing import Any

from gemm_lab.core.dtypes import Layout
from gemm_lab.core.dtypes import dtype as dtype_named
from gemm_lab.core.measurement import Measurement
from gemm_lab.core.problem import GemmProblem
from gemm_lab.errors import GemmLabError, UsageError
from gemm_lab.lab.bench import BENCH_SETTINGS
from gemm_lab.lab.choice import Basis
from gemm_lab.lab.choose import explain
from gemm_lab.lab.describe import measured_problem
from gemm_lab.lab.journal import Journal
from gemm_lab.lab.measure import PoisonedError, measure_group
from gemm_lab.lab.prepare import Request
from gemm_lab.lab.suite import load_suite
from gemm_lab.lab.sweep import shapes_of
from gemm_lab.lab.workbench import LOWEST_USUAL_ARCH, Workbench


def problems(arguments: argparse.Namespace) -> Iterator[tuple[str, GemmProblem]]:
    """Every suite's shapes, and those that are named, in each dtype and layout."""
    named = [tuple(int(x) for x in text.split("x")) for text in arguments.shape]
    groups = [load_suite(name) for name in arguments.suite]
    for dtype in arguments.dtype:
        for layout in arguments.layout:
            shapes = [s.shape for suite in groups for s in suite.shapes]
            shapes += [s for size in named for s in shapes_of(size)]
            arithmetic = dtype_named(dtype)
            for shape in dict.fromkeys(shapes):
                yield (
                    dtype,
                    GemmProblem(
                        shape=shape, dtype=arithmetic, out=arithmetic.default_out, layout=layout
                    ),
                )


def measured(
    bench: Workbench,
    backend: Any,
    dtype: str,
    problem: GemmProblem,
    arguments: argparse.Namespace,
) -> list[Measurement]:
    """The first kernels of the choice, in order, without those that failed."""
    layout: Layout = problem.layout
    choice = explain(
        shape=problem.shape, dtype=dtype, layout=layout, backend=backend.name, workbench=bench
    )
    # Low rungs that nobody examined would take seconds a call.
    tried = [
        a
        for a in choice.alternatives
        if a is choice.chosen or (not a.copies and a.basis is not Basis.LADDER)
    ]
    requests = [
        Request(variant=bench.variant(a.variant), config=a.config) for a in tried[: arguments.top]
    ]
    settings = replace(BENCH_SETTINGS, max_seconds=arguments.max_seconds)
    found = measure_group(bench, backend, requests, problem, settings)
    for request, one in zip(requests, found, strict=True):
        if isinstance(one, GemmLabError):
            print(f"{request.variant.name} {request.config}: {one.message}", file=sys.stderr)
    return [one for one in found if isinstance(one, Measurement)]


def summary(title: str, some: list[Measurement]) -> None:
    """Geometric mean and the ten worst."""
    timed = [(m.ratio_to_baseline.median, m) for m in some if m.ratio_to_baseline is not None]
    if not timed:
        print(f"{title}: nothing was timed beside the library")
        return
    mean = exp(sum(log(ratio) for ratio, _ in timed) / len(timed))
    print(f"{title}: geometric mean {mean:.3f} of the library over {len(timed)} problems; worst:")
    for ratio, m in sorted(timed, key=lambda pair: pair[0])[:10]:
        p = m.problem
        size = f"{p.m}x{p.n}x{p.k}" + (f" x{p.batch}" if p.batch > 1 else "")
        print(f"  {ratio:.3f}  {p.dtype} {p.layout} {size}: {m.variant}")


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
    bench = Workbench()
    try:
        backend = bench.choose_backend(
            arguments.backend, lowest_arch=LOWEST_USUAL_ARCH, arch=None, device=None
        ).backend
    except GemmLabError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    taken: list[Measurement] = []
    best: list[Measurement] = []
    with Journal(arguments.output) as journal:
        done: dict[Any, list[Measurement]] = {}
        for m in journal.before.measurements:
            done.setdefault(m.problem, []).append(m)
        for dtype, problem in problems(arguments):
            found = done.get(measured_problem(problem), [])
            if not found:
                try:
                    found = measured(bench, backend, dtype, problem, arguments)
                except PoisonedError as error:
                    print(f"{problem.shape} broke the card's context: {error}", file=sys.stderr)
                    return error.exit_code
                except UsageError as error:  # no variant does it
                    print(f"{problem.shape} {dtype} {problem.layout}: {error}", file=sys.stderr)
                    continue
                for m in found:
                    journal.append(m)
            if found:
                taken.append(found[0])
                best.append(min(found, key=lambda m: m.median_ms or float("inf")))
    summary("what choice took", taken)
    if arguments.top > 1:
        summary("the best that was tried", best)
    wrong = [m for m in (*taken, *best) if m.verified is False]
    return 3 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
