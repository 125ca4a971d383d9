"""Times a trial beside the library, in the same rounds, with inputs that are cold in L2."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gemm_lab.core.statistics import summarize
from gemm_lab.gpu.baseline import GemmBuffers, baselines, best_baseline
from gemm_lab.gpu.clocks import ClockMeter
from gemm_lab.gpu.stopwatch import CudaStopwatch
from gemm_lab.gpu.timing import Samples, TimingSettings, measure_interleaved, rotation
from gemm_lab.lab.trial import Trial

__all__ = ["TimedBaseline", "TimedTrial", "time_trial"]

KERNEL, LIBRARY = "kernel", "library"


@dataclass(frozen=True, kw_only=True)
class TimedBaseline:
    """The library's samples, round by round beside the kernel's."""

    name: str
    compute_type: str
    samples_ms: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class TimedTrial:
    """Samples of the kernel, of the library, and how the card behaved."""

    kernel: Samples
    baseline: TimedBaseline | None
    clocks: Mapping[str, Any] | None
    warm_median_ms: float | None
    warnings: tuple[str, ...]


def time_trial(
    trial: Trial, *, baseline: bool, seed: int, max_seconds: float, max_rounds: int
) -> TimedTrial:
    """Shuffled rounds of kernel and library over as many buffer sets as twice the L2 needs."""
    backend = trial.backend
    with backend.on_device("timing"):
        turn = rotation(
            trial.input_bytes, l2_bytes=backend.info.l2_bytes, free_bytes=backend.free_bytes()
        )
        trial.add_sets(turn.sets)
        stopwatch = CudaStopwatch(backend.device)
        runners = {KERNEL: trial.launch}
        warnings: list[str] = []
        library = None
        if baseline:
            library, missing = _library(trial, stopwatch)
            warnings += missing
            if library is not None:
                runners[LIBRARY] = library.run
        meter = ClockMeter(backend.device)
        timed = measure_interleaved(
            runners,
            stopwatch=stopwatch,
            set_count=turn.sets,
            settings=TimingSettings(seed=seed, max_seconds=max_seconds, max_rounds=max_rounds),
            meter=meter,
        )
        warm = _warm(trial, stopwatch, seed) if turn.sets > 1 else None
    if not turn.cold:
        warnings.append(
            f"the inputs may be warm in L2: {turn.sets} sets do not reach twice its size"
        )
    if timed.clocks is not None and timed.clocks.throttled:
        warnings.append(f"the card throttled: {', '.join(timed.clocks.throttled)}")
    return TimedTrial(
        kernel=timed.samples[KERNEL],
        baseline=None
        if library is None
        else TimedBaseline(
            name=library.name,
            compute_type=library.compute_type,
            samples_ms=timed.samples[LIBRARY].samples_ms,
        ),
        clocks=None if timed.clocks is None else asdict(timed.clocks),
        warm_median_ms=warm,
        warnings=(*warnings, *timed.warnings),
    )


def _library(trial: Trial, stopwatch: CudaStopwatch) -> tuple[Any, list[str]]:
    buffers = [GemmBuffers(a=x.a, b=x.b, c=x.c, bias=x.bias) for x in trial.addresses]
    found = baselines(trial.problem, trial.data.strides, buffers, device=trial.backend.device)
    best = best_baseline(found.candidates, stopwatch.median_ms)
    notes = [] if best is not None else list(found.missing)
    if best is not None and best.note:
        notes.append(f"{best.name}: {best.note}")
    return best, notes


def _warm(trial: Trial, stopwatch: CudaStopwatch, seed: int) -> float | None:
    """Median with the inputs of one set over and over, warm in L2 as far as they fit."""
    timed = measure_interleaved(
        {KERNEL: trial.launch},
        stopwatch=stopwatch,
        settings=TimingSettings(seed=seed, max_rounds=60, max_seconds=0.5, settle=False),
    )
    summary = summarize(timed.samples[KERNEL].samples_ms)
    return None if summary is None else summary.median_ms
