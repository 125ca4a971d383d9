"""How fast the emulator runs the ladder: the least of several runs, without NVRTC.

    python benchmarks/emulator_speed.py [--sizes 256,512,1024] [--repeats 5] [--write]

`--write` keeps the figures in benchmarks/results/emulator_speed.json. Targets in milliseconds on
two cores stand beside them; `watched` is one block with all counters and the race detector.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gemm_lab.core.dtypes import dtype as dtype_of
from gemm_lab.core.problem import GemmProblem, Shape
from gemm_lab.emulator import Options
from gemm_lab.emulator.backend import EmulatorBackend
from gemm_lab.lab.prepare import Request
from gemm_lab.lab.trial import make_executor, make_trial
from gemm_lab.lab.workbench import Workbench, choose_arch
from gemm_lab.variants import Catalogue, Variant

TARGETS_MS = {"cuda": {256: 100, 512: 250, 1024: 1500}, "tensor": {512: 400}}
GOALS_MS = {"cuda": {256: 50, 512: 200, 1024: 1200}, "tensor": {}}
WATCHED_TARGET_MS = 150
RESULTS = Path(__file__).parent / "results" / "emulator_speed.json"


def least_ms(call: Any, repeats: int) -> tuple[float, float]:
    """(first, least) milliseconds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1e3)
    return times[0], min(times)


def measure(bench: Workbench, variant: Variant, size: int, repeats: int) -> dict[str, Any]:
    """One rung at size^3, in fp32 or else its first arithmetic."""
    dtype = "fp32" if "fp32" in variant.dtypes else next(iter(variant.dtypes))
    arch = choose_arch(variant.support(dtype).arch, None, None)
    backend = EmulatorBackend(arch=arch)
    kind = dtype_of(dtype)
    problem = GemmProblem(
        shape=Shape(m=size, n=size, k=size), dtype=kind, out=kind.default_out, layout="nn"
    )
    request = Request.of(variant, dtype, {}, arch=arch)
    executor, _ = make_executor(bench, backend, request, problem)
    trial = make_trial(backend, executor, problem, seed=0)
    first, least = least_ms(trial.launch, repeats)
    trial.reset_c()
    trial.launch()
    group = "cuda" if dtype == "fp32" else "tensor"
    row: dict[str, Any] = {
        "variant": variant.name,
        "dtype": dtype,
        "size": size,
        "first_ms": round(first, 1),
        "least_ms": round(least, 1),
        "target_ms": TARGETS_MS[group].get(size),
        "goal_ms": GOALS_MS[group].get(size),
        "verified": bool(trial.check().ok),
    }
    if size == 256:
        backend.options = replace(
            Options(), races="sampled", counters="sampled", blocks=(executor_blocks(executor) // 2,)
        )
        row["watched_ms"] = round(least_ms(trial.launch, repeats)[1], 1)
        row["watched_target_ms"] = WATCHED_TARGET_MS
    return row


def executor_blocks(executor: Any) -> int:
    """Blocks of the first launch."""
    return int(np.prod(executor.plan.launches[0].grid))


def main() -> None:
    """Measure, print, and keep the figures if asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="256,512,1024")
    parser.add_argument("--variants", default=",".join(v.name for v in Catalogue().ladder()))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    bench = Workbench()
    rows = []
    print(f"{'variant':16s} {'size':>5s} {'first':>8s} {'least':>8s} {'target':>7s} watched  [ms]")
    for variant in map(bench.variant, options.variants.split(",")):
        for size in map(int, options.sizes.split(",")):
            row = measure(bench, variant, size, options.repeats)
            rows.append(row)
            target = row["target_ms"] or ""
            print(
                f"{variant.name:16s} {size:5d} {row['first_ms']:8.1f} {row['least_ms']:8.1f} "
                f"{target!s:>7s} {row.get('watched_ms', '')!s:>7s} "
                f"{'' if row['verified'] else 'WRONG'}"
            )
    if options.write:
        RESULTS.parent.mkdir(exist_ok=True)
        document = {
            "schema": 1,
            "machine": {"cores": os.cpu_count(), "processor": platform.machine()},
            "numpy": np.__version__,
            "python": platform.python_version(),
            "rows": rows,
        }
        RESULTS.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
