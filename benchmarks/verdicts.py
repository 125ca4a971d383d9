"""Does compare say the right thing on this card? Needs a GPU; about half a minute.

    python benchmarks/verdicts.py [--variant warp_tiled] [-o verdicts.json]

20 times one kernel against itself, which must be "same" 20 times, and 20 times against itself
followed by 2% more work (a thin product of the same kernel), which must be "slower" 19 times. Exit
code 1 otherwise.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from gemm_lab.core.dtypes import dtype
from gemm_lab.core.measurement import Ratio
from gemm_lab.core.problem import GemmProblem, Shape
from gemm_lab.gpu.stopwatch import CudaStopwatch
from gemm_lab.gpu.timing import Runner, TimingSettings, measure_interleaved
from gemm_lab.lab.compare import MARGIN, classify, paired_interval
from gemm_lab.lab.prepare import Request
from gemm_lab.lab.trial import Trial, make_executor, make_trial
from gemm_lab.lab.versus import VERSUS_SETTINGS
from gemm_lab.lab.workbench import Workbench

REPEATS = 20
SIZE = 4096
SLOWER = 1.02


def trial(bench: Workbench, backend: Any, variant: str, k: int) -> Trial:
    """SIZE x SIZE x k, uploaded, with a C of its own."""
    fp32 = dtype("fp32")
    problem = GemmProblem(shape=Shape(m=SIZE, n=SIZE, k=k), dtype=fp32, out=fp32.out(None))
    request = Request.of(bench.variant(variant), "fp32", {})
    executor, _ = make_executor(bench, backend, request, problem)
    return make_trial(backend, executor, problem, seed=0)


def slowed(bench: Workbench, backend: Any, variant: str, main: Trial) -> Runner:
    """The kernel followed by the thin product whose time comes nearest to 2% of its own."""
    clock = CudaStopwatch(backend.device)
    with backend.on_device("choosing the extra work"):
        wanted = (SLOWER - 1) * clock.median_ms(lambda: main.launch(0))
        thin = [trial(bench, backend, variant, k) for k in range(8, 129, 8)]

        def miss(extra: Trial) -> float:
            return abs(clock.median_ms(lambda: extra.launch(0)) - wanted)

        extra = min(thin, key=miss)

    def run(index: int) -> None:
        main.launch(index)
        extra.launch(index)

    return run


def judge(backend: Any, a: Runner, b: Runner, seed: int) -> tuple[str, Ratio]:
    """The verdict of one interleaved run."""
    settings = TimingSettings(
        seed=seed,
        min_rounds=VERSUS_SETTINGS.min_rounds,
        max_rounds=VERSUS_SETTINGS.max_rounds,
        max_seconds=VERSUS_SETTINGS.max_seconds,
        target_error=VERSUS_SETTINGS.target_error,
    )
    with backend.on_device("verdicts"):
        timed = measure_interleaved(
            {"a": a, "b": b},
            stopwatch=CudaStopwatch(backend.device),
            settings=settings,
        )
    ratio = paired_interval(timed.samples["a"].samples_ms, timed.samples["b"].samples_ms)
    return classify(ratio, MARGIN), ratio


def main() -> int:
    """Run both series; tell and write what was said."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--variant", default="warp_tiled")
    parser.add_argument("-o", "--output", type=Path)
    asked = parser.parse_args()
    bench = Workbench()
    backend = bench.gpu()
    one, same = (trial(bench, backend, asked.variant, SIZE) for _ in range(2))
    more = slowed(bench, backend, asked.variant, same)
    told: dict[str, Any] = {"device": backend.device_name, "variant": asked.variant}
    good = True
    for name, other, wanted, least in (
        ("itself", same.launch, "same", 20),
        ("2% more", more, "slower", 19),
    ):
        said = [judge(backend, one.launch, other, seed) for seed in range(REPEATS)]
        count = sum(verdict == wanted for verdict, _ in said)
        good &= count >= least
        told[name] = {
            "wanted": wanted,
            "count": count,
            "of": REPEATS,
            "verdicts": [verdict for verdict, _ in said],
            "ratios": [[r.low, r.median, r.high] for _, r in said],
        }
        medians = sorted(r.median for _, r in said)
        print(
            f"{asked.variant} against {name}: {wanted} in {count} of {REPEATS}; "
            f"A / B from {medians[0]:.4f} to {medians[-1]:.4f}"
        )
    if asked.output:
        asked.output.write_text(json.dumps(told, indent=1) + "\n")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
