"""Times trials beside the library, in the same rounds, with inputs that are cold in L2."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from gemm_lab.core.statistics import summarize
from gemm_lab.gpu.baseline import GemmBuffers, baselines, best_baseline
from gemm_lab.gpu.clocks import ClockMeter
from gemm_lab.gpu.stopwatch import CudaStopwatch
from gemm_lab.gpu.timing import Runner, Samples, TimingSettings, measure_interleaved, rotation
from gemm_lab.lab.trial import Trial

__all__ = [
    "GPU_TOOLS",
    "Library",
    "TimedBaseline",
    "TimedGroup",
    "TimingTools",
    "is_too_slow",
    "time_trials",
]

LIBRARY = "library"
_WARM_SECONDS = 0.5
# A kernel of several that could not alone do so many rounds in the time is left out.
_LEAST_ROUNDS = 10


@dataclass(frozen=True, kw_only=True)
class Library:
    """A library call that computes the same product; `run(i)` starts it on buffer set i."""

    name: str
    compute_type: str
    run: Callable[[int], None]


@dataclass(frozen=True, kw_only=True)
class TimingTools:
    """What timing needs of a device; tests put their own in.

    `library` takes the trial whose operands it shall read and a stopwatch, and gives the best
    library call (None when there is none) with notes.
    """

    stopwatch: Callable[[Any], Any]
    library: Callable[[Trial, Any], tuple[Library | None, list[str]]]
    meter: Callable[[Any], ClockMeter | None]


@dataclass(frozen=True, kw_only=True)
class TimedBaseline:
    """The library's samples, round by round beside the kernels'."""

    name: str
    compute_type: str
    samples_ms: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class TimedGroup:
    """Samples of the kernels by index, of the library, and how the card behaved.

    `too_slow` are the milliseconds of one call of those that have no samples.
    """

    kernels: Mapping[int, Samples]
    too_slow: Mapping[int, float]
    baseline: TimedBaseline | None
    clocks: Mapping[str, Any] | None
    warm_median_ms: Mapping[int, float | None]
    warnings: tuple[str, ...]


def _best_library(trial: Trial, stopwatch: Any) -> tuple[Library | None, list[str]]:
    buffers = [GemmBuffers(a=x.a, b=x.b, c=x.c, bias=x.bias) for x in trial.addresses]
    found = baselines(trial.problem, trial.data.strides, buffers, device=trial.backend.device)
    # Full sums are held against full sums, fast ones against fast.
    same = [c for c in found.candidates if c.fast_accumulation == trial.executor.fast_accumulation]
    best = best_baseline(same, stopwatch.median_ms)
    if best is None:
        return None, list(found.missing)
    notes = [f"{best.name}: {best.note}"] if best.note else []
    return Library(name=best.name, compute_type=best.compute_type, run=best.run), notes


GPU_TOOLS = TimingTools(
    stopwatch=lambda backend: CudaStopwatch(backend.device),
    library=_best_library,
    meter=lambda backend: ClockMeter(backend.device),
)


def time_trials(
    trials: Mapping[int, Trial],
    *,
    baseline: bool,
    seed: int,
    max_seconds: float,
    min_rounds: int = 20,
    max_rounds: int = 400,
    target_error: float = 0.005,
    tools: TimingTools = GPU_TOOLS,
    progress: Callable[[int, int], None] | None = None,
) -> TimedGroup:
    """Shuffled rounds of all kernels and the library, on buffers that fill twice the L2.

    The trials answer one problem and share A and B where their strides agree. Of several, those
    that would leave the others too few rounds are not timed.
    """
    first = next(iter(trials.values()))
    backend = first.backend
    with backend.on_device("timing"):
        # The C of each kernel takes memory too, but only A and B must be cold.
        share = first.input_bytes / (first.input_bytes + sum(t.c_bytes for t in trials.values()))
        turn = rotation(
            first.input_bytes,
            l2_bytes=backend.info.l2_bytes,
            free_bytes=int(backend.free_bytes() * share),
        )
        stopwatch = tools.stopwatch(backend)
        too_slow = _too_slow(trials, stopwatch, max_seconds)
        trials = {index: trial for index, trial in trials.items() if index not in too_slow}
        for trial in trials.values():
            trial.add_sets(turn.sets)
        runners: dict[str, Runner] = {_name(index): trial.launch for index, trial in trials.items()}
        warnings: list[str] = []
        library = None
        if baseline:
            library, notes = tools.library(_packed(trials), stopwatch)
            warnings += notes
            if library is not None:
                runners[LIBRARY] = library.run
        timed = measure_interleaved(
            runners,
            stopwatch=stopwatch,
            set_count=turn.sets,
            settings=TimingSettings(
                seed=seed,
                max_seconds=max_seconds,
                min_rounds=min(min_rounds, max_rounds),
                max_rounds=max_rounds,
                target_error=target_error,
            ),
            meter=tools.meter(backend),
            progress=progress,
        )
        warm = {
            index: _warm(trial, stopwatch, seed) if turn.sets > 1 else None
            for index, trial in trials.items()
        }
    if not turn.cold:
        warnings.append("the inputs may be warm in L2: memory does not hold enough sets")
    if timed.clocks is not None and timed.clocks.throttled:
        warnings.append(f"the card throttled: {', '.join(timed.clocks.throttled)}")
    return TimedGroup(
        kernels={index: timed.samples[_name(index)] for index in trials},
        too_slow=too_slow,
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


def is_too_slow(single_ms: float, max_seconds: float) -> bool:
    """Whether a kernel would leave those that share its rounds with too few of them."""
    return _LEAST_ROUNDS * single_ms > max_seconds * 1e3


def _too_slow(
    trials: Mapping[int, Trial], stopwatch: Any, max_seconds: float
) -> Mapping[int, float]:
    """Milliseconds of one call of each trial that must go; the fastest never goes."""
    if len(trials) == 1:
        return {}
    single = {
        i: float(stopwatch.time_chunk([partial(trial.launch, 0)])[0]) for i, trial in trials.items()
    }
    fastest = min(single, key=lambda i: single[i])
    return {i: ms for i, ms in single.items() if i != fastest and is_too_slow(ms, max_seconds)}


def _name(index: int) -> str:
    return f"kernel {index}"


def _packed(trials: Mapping[int, Trial]) -> Trial:
    """The trial whose operands the library reads: one without padded rows if there is one."""
    found = list(trials.values())
    packed = found[0].problem.packed_strides()
    return next((t for t in found if t.data.strides == packed), found[0])


def _warm(trial: Trial, stopwatch: Any, seed: int) -> float | None:
    """Median with the inputs of one set over and over, warm in L2 as far as they fit."""
    timed = measure_interleaved(
        {"warm": trial.launch},
        stopwatch=stopwatch,
        settings=TimingSettings(seed=seed, max_rounds=60, max_seconds=_WARM_SECONDS, settle=False),
    )
    summary = summarize(timed.samples["warm"].samples_ms)
    return None if summary is None else summary.median_ms
