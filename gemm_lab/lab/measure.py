"""One problem, one kernel, one Measurement: compile, run, verify, time beside the baseline."""

from __future__ import annotations

import platform
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from gemm_lab import jit
from gemm_lab.core.kernel import CompiledKernel, KernelLaunch, format_value
from gemm_lab.core.measurement import (
    Baseline,
    MeasuredProblem,
    MeasuredResources,
    Measurement,
)
from gemm_lab.core.problem import GemmProblem
from gemm_lab.core.statistics import paired_ratio, summarize
from gemm_lab.errors import GemmLabError, ResourceError
from gemm_lab.lab.execute import Executor
from gemm_lab.lab.prepare import Request
from gemm_lab.lab.timing import time_trial
from gemm_lab.lab.trial import Trial, make_executor, make_trial
from gemm_lab.lab.verify import Verdict
from gemm_lab.lab.workbench import Workbench
from gemm_lab.model import BlockResources, hardware_occupancy, load_devices, peak_tflops
from gemm_lab.model.devices import find_device

__all__ = ["RunSettings", "describe_command", "measure"]

Progress = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """What to do with a problem besides running it once."""

    seed: int = 0
    verify: bool = True
    time: bool = True
    baseline: bool = True
    max_seconds: float = 5.0
    max_rounds: int = 400
    counters: bool = False
    progress: Progress | None = field(default=None, compare=False)


def measure(
    bench: Workbench,
    backend: Any,
    request: Request,
    problem: GemmProblem,
    settings: RunSettings,
) -> Measurement:
    """Run a kernel on a backend and tell everything about it.

    Only a GPU is timed: the emulator's own time says nothing about a kernel.
    """
    say = settings.progress or (lambda _: None)
    say("compiling")
    executor, notes = make_executor(bench, backend, request, problem)
    base = _describe(backend, request, problem, executor, settings, notes)
    if 0 in (problem.shape.m, problem.shape.n, problem.shape.batch):
        return replace(base, verified=True, warnings=(*base.warnings, "an empty C: no launch"))
    on_gpu = backend.name == "gpu"
    say("uploading inputs")
    trial = make_trial(backend, executor, problem, seed=settings.seed)
    try:
        measured = base
        if settings.time and on_gpu and problem.shape.flop_count > 0:
            say("timing")
            measured = _with_times(measured, trial, settings)
        if settings.verify:
            say("verifying")
            measured = _with_verdict(measured, trial.check())
        if not on_gpu:
            measured = replace(measured, counters=_counters(backend))
    finally:
        trial.free()
    return _above_peak(measured)


def describe_command(
    request: Request, problem: GemmProblem, backend: str, seed: int, *, defaults: bool = False
) -> str:
    """The command line that repeats a run; tunables at their defaults are left out."""
    variant, s = request.variant, problem.shape
    support = variant.support(problem.dtype.name)
    known = variant.name
    words = ["gemm-lab", "run", "--variant", known]
    words += ["--shape", f"{s.m}x{s.n}x{s.k}"]
    if s.batch != 1:
        words += ["--batch", str(s.batch)]
    for name, value in request.config.items():
        default = support.defaults.get(name, variant.tunables[name].default)
        if value != default or defaults:
            words += ["-p", f"{name}={format_value(value)}"]
    words += ["--dtype", problem.dtype.name]
    if problem.out is not problem.dtype.default_out:
        words += ["--out-dtype", problem.out.name]
    words += ["--layout", problem.layout]
    if problem.alpha != 1:
        words += ["--alpha", repr(problem.alpha)]
    if problem.beta != 0:
        words += ["--beta", repr(problem.beta)]
    if problem.epilogue:
        words += ["--epilogue", problem.epilogue]
    if problem.bias:
        words += ["--bias"]
    if request.arch:
        words += ["--arch", request.arch]
    if request.smem_pad_bytes:
        words += ["--smem-pad", str(request.smem_pad_bytes)]
    if request.specialize:
        words += ["--specialize"]
    words += ["--seed", str(seed), "--backend", backend]
    return shlex.join(words)


def _describe(
    backend: Any,
    request: Request,
    problem: GemmProblem,
    executor: Executor,
    settings: RunSettings,
    notes: tuple[str, ...],
) -> Measurement:
    s, compiled = problem.shape, executor.compiled
    return Measurement(
        command=describe_command(request, problem, backend.name, settings.seed),
        variant=request.variant.name,
        source_sha256=compiled.rendered.source_sha256,
        config=dict(request.config),
        problem=MeasuredProblem(
            m=s.m,
            n=s.n,
            k=s.k,
            batch=s.batch,
            dtype=problem.dtype.name,
            out_dtype=problem.out.name,
            layout=problem.layout,
            alpha=problem.alpha,
            beta=problem.beta,
            epilogue=problem.epilogue,
        ),
        backend=backend.name,
        device=backend.device_name,
        arch=compiled.rendered.arch,
        resources=_resources(compiled, executor),
        cache_hit=compiled.cache_hit,
        ptx_hash=compiled.ptx_hash,
        versions=_versions(compiled),
        warnings=(*jit.log_warnings(compiled.log), *notes),
        seed=settings.seed,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _resources(compiled: CompiledKernel, executor: Executor) -> MeasuredResources:
    """Of the launch that needs most registers a block."""

    def need(launch: KernelLaunch) -> int:
        x, y, z = launch.block
        return compiled.resources[launch.entry].registers_per_thread * x * y * z

    launch = max(executor.plan.launches, key=need)
    found = compiled.resources[launch.entry]
    x, y, z = launch.block
    occupancy = hardware_occupancy(
        executor.limits,
        BlockResources(
            threads=x * y * z,
            registers_per_thread=found.registers_per_thread,
            static_smem_bytes=found.static_smem_bytes,
            dynamic_smem_bytes=launch.smem_bytes,
        ),
    )
    if occupancy.blocks_per_sm == 0:
        limiters = ", ".join(str(x) for x in occupancy.limiters)
        raise ResourceError(
            f"not one block of {launch.entry} fits on a multiprocessor of "
            f"{compiled.rendered.arch}: {found.registers_per_thread} registers x {x * y * z} "
            f"threads, {found.static_smem_bytes + launch.smem_bytes} bytes of shared memory",
            hint=f"limited by {limiters}: take fewer threads, a smaller tile or fewer stages",
        )
    return MeasuredResources(
        registers_per_thread=found.registers_per_thread,
        static_smem_bytes=found.static_smem_bytes,
        dynamic_smem_bytes=launch.smem_bytes,
        spill_store_bytes=found.spill_store_bytes,
        spill_load_bytes=found.spill_load_bytes,
        occupancy=occupancy.fraction,
    )


def _versions(compiled: CompiledKernel) -> Mapping[str, str]:
    found = {
        "nvrtc": compiled.nvrtc_version,
        "headers": compiled.header_set,
        "python": platform.python_version(),
    }
    for package in ("gemm-lab", "numpy", "cupy-cuda12x", "cupy-cuda13x"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _with_times(measured: Measurement, trial: Trial, settings: RunSettings) -> Measurement:
    timed = time_trial(
        trial,
        baseline=settings.baseline,
        seed=settings.seed,
        max_seconds=settings.max_seconds,
        max_rounds=settings.max_rounds,
    )
    flop_count = trial.problem.shape.flop_count
    own = timed.kernel
    median = summarize(own.samples_ms)
    baseline = ratio = None
    if timed.baseline is not None:
        found = timed.baseline
        summary = summarize(found.samples_ms)
        baseline = Baseline(
            name=found.name,
            compute_type=found.compute_type,
            samples_ms=found.samples_ms,
            median_ms=None if summary is None else summary.median_ms,
            tflops=None if summary is None else _tflops(flop_count, summary.median_ms),
        )
        ratio = paired_ratio(found.samples_ms, own.samples_ms)
    return replace(
        measured,
        samples_ms=own.samples_ms,
        median_ms=None if median is None else median.median_ms,
        tflops=None if median is None else _tflops(flop_count, median.median_ms),
        launch_bound=own.launch_bound,
        baseline=baseline,
        ratio_to_baseline=ratio,
        clocks=timed.clocks,
        warm_median_ms=timed.warm_median_ms,
        warnings=(*measured.warnings, *timed.warnings),
    )


def _tflops(flop_count: int, median_ms: float) -> float | None:
    return flop_count / median_ms / 1e9 if median_ms > 0 and flop_count else None


def _with_verdict(measured: Measurement, verdict: Verdict) -> Measurement:
    notes = measured.warnings
    if verdict.checked < 1:
        notes = (*notes, f"{verdict.checked:.1%} of the rows were compared, drawn by the seed")
    return replace(
        measured,
        verified=verdict.ok,
        relative_rmse=verdict.relative_rmse,
        max_error=verdict.max_error,
        tolerance=verdict.tolerance,
        warnings=notes,
    )


def _counters(backend: Any) -> Mapping[str, Any] | None:
    found = getattr(backend, "counters", None)
    return None if found is None else found()


def _above_peak(measured: Measurement) -> Measurement:
    """A rate above the card's peak is a fault of the measurement; GemmLabError."""
    if measured.tflops is None:
        return measured
    try:
        device = find_device(measured.device, load_devices())
        peak = peak_tflops(device, measured.problem.dtype)
    except GemmLabError:
        return measured  # a card that the table does not know
    if measured.tflops > peak:
        raise GemmLabError(
            f"{measured.tflops:.1f} TFLOP/s is above the peak of {device.name}, {peak:g}: "
            "the time or the work is wrong",
            hint="report it with `gemm-lab doctor --json`",
        )
    return measured
