"""One problem and the kernels that answer it: compile, run, verify, time beside the baseline.

`measure` does one kernel. `measure_group` does several in the same rounds: `run`, `sweep` and
`bench` all come through here.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from gemm_lab.core.measurement import Baseline, Measurement
from gemm_lab.core.problem import GemmProblem
from gemm_lab.core.statistics import paired_ratio, summarize
from gemm_lab.errors import GemmLabError, LaunchError, ResourceError
from gemm_lab.gpu.timing import Samples
from gemm_lab.lab.describe import describe, describe_command
from gemm_lab.lab.findings import observed, watching
from gemm_lab.lab.prepare import Request
from gemm_lab.lab.timing import GPU_TOOLS, TimedBaseline, TimedGroup, TimingTools, time_trials
from gemm_lab.lab.trial import Trial, make_executor, make_trial
from gemm_lab.lab.verify import Verdict
from gemm_lab.lab.workbench import Workbench
from gemm_lab.model import load_devices, peak_tflops
from gemm_lab.model.devices import find_device

__all__ = [
    "GroupListener",
    "PoisonedError",
    "RunSettings",
    "describe_command",
    "measure",
    "measure_group",
]

Progress = Callable[[str], None]
# Told (what is done now, index of the kernel or None for all together).
GroupListener = Callable[[str, int | None], None]


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """What to do with a problem besides running it once.

    Timing stops between `min_rounds` and `max_rounds`, when the relative standard error is under
    `target_error`, or after `max_seconds` of device time.
    """

    seed: int = 0
    verify: bool = True
    time: bool = True
    baseline: bool = True
    max_seconds: float = 5.0
    min_rounds: int = 20
    max_rounds: int = 400
    target_error: float = 0.005
    counters: bool = False
    progress: Progress | None = field(default=None, compare=False)


class PoisonedError(LaunchError):
    """A kernel of a group broke the device's context: nothing more can run in this process."""

    def __init__(self, index: int, cause: GemmLabError) -> None:
        super().__init__(cause.message, hint=cause.hint)
        self.index = index


def measure(
    bench: Workbench,
    backend: Any,
    request: Request,
    problem: GemmProblem,
    settings: RunSettings,
) -> Measurement:
    """Run a kernel on a backend and tell everything about it.

    Only a GPU is timed: the emulator's own time says nothing about a kernel. The backend "none"
    compiles alone.
    """
    say = settings.progress or (lambda _: None)
    if backend.name == "none":
        say("compiling")
        executor, notes = make_executor(bench, backend, request, problem)
        return describe(backend, request, problem, executor, settings.seed, notes)
    (found,) = measure_group(
        bench, backend, [request], problem, settings, listener=lambda what, _: say(what)
    )
    if isinstance(found, GemmLabError):
        raise found
    return found


def measure_group(
    bench: Workbench,
    backend: Any,
    requests: Sequence[Request],
    problem: GemmProblem,
    settings: RunSettings,
    *,
    tools: TimingTools = GPU_TOOLS,
    listener: GroupListener | None = None,
) -> list[Measurement | GemmLabError]:
    """Several kernels on one problem, timed in the same rounds as the baseline.

    They share A and B; each has its own C, poisoned before it is verified. In the place of a
    kernel that failed stands its error. PoisonedError: the process can do no more, and who did it.
    """
    say = listener or (lambda _what, _index: None)
    group = _Group(bench, backend, problem, settings, say)
    try:
        for index, request in enumerate(requests):
            group.add(index, request)
        if settings.time and backend.name == "gpu" and problem.shape.flop_count > 0:
            group.time(tools)
        if settings.verify:
            group.verify()
        elif backend.name == "emulator":
            group.watch()
    finally:
        group.free()
    return [group.found[index] for index in range(len(requests))]


class _Group:
    """Kernels on their way through a measurement; `found` ends with a Measurement or an error."""

    def __init__(
        self,
        bench: Workbench,
        backend: Any,
        problem: GemmProblem,
        settings: RunSettings,
        say: GroupListener,
    ) -> None:
        self.bench = bench
        self.backend = backend
        self.problem = problem
        self.settings = settings
        self.say = say
        self.found: dict[int, Measurement | GemmLabError] = {}
        self.trials: dict[int, Trial] = {}
        self._made: list[Trial] = []

    def add(self, index: int, request: Request) -> None:
        """Compile, load and upload; on a GPU also run once, so that a faulty kernel is named."""
        shape = self.problem.shape
        self.say("compiling", index)
        try:
            executor, notes = make_executor(self.bench, self.backend, request, self.problem)
            base = describe(
                self.backend, request, self.problem, executor, self.settings.seed, notes
            )
            self.found[index] = base
            if 0 in (shape.m, shape.n, shape.batch):
                warnings = (*base.warnings, "an empty C: no launch")
                self.found[index] = replace(base, verified=True, warnings=warnings)
                return
            self.say("uploading inputs", index)
            trial = make_trial(
                self.backend,
                executor,
                self.problem,
                seed=self.settings.seed,
                lender=next((t for t in self._made if t.data.strides == executor.strides), None),
            )
            self._made.append(trial)
            self.trials[index] = trial
            if self.backend.name == "gpu":
                self.say("trying", index)
                trial.launch()
                self.backend.synchronize()
        except GemmLabError as error:
            self._fail(index, error)

    def time(self, tools: TimingTools) -> None:
        """All of them, and the baseline, in the same rounds."""
        if not self.trials:
            return
        self.say("timing", None)
        s = self.settings
        timed = time_trials(
            self.trials,
            baseline=s.baseline,
            seed=s.seed,
            max_seconds=s.max_seconds,
            min_rounds=s.min_rounds,
            max_rounds=s.max_rounds,
            target_error=s.target_error,
            tools=tools,
            progress=lambda done, most: self.say(f"timing, round {done} of at most {most}", None),
        )
        name = secrets.token_hex(8) if len(self.trials) > 1 else None
        for index in self.trials:
            measured = self.found[index]
            if isinstance(measured, Measurement):
                self.found[index] = replace(_with_times(measured, index, timed), group=name)

    def verify(self) -> None:
        """Each against the reference."""
        for index, trial in list(self.trials.items()):
            measured = self.found[index]
            assert isinstance(measured, Measurement)
            self.say("verifying", index)
            try:
                with self._watching() as reports:
                    verdict = trial.check()
                measured = observed(_with_verdict(measured, verdict), reports)
                self.found[index] = _above_peak(measured)
            except GemmLabError as error:
                self._fail(index, error)

    def watch(self) -> None:
        """On the emulator each runs all the same when nobody verifies it."""
        for index, trial in list(self.trials.items()):
            measured = self.found[index]
            assert isinstance(measured, Measurement)
            self.say("running", index)
            try:
                with self._watching() as reports:
                    trial.reset_c()
                    trial.launch()
                self.found[index] = observed(measured, reports)
            except GemmLabError as error:
                self._fail(index, error)

    def _watching(self) -> AbstractContextManager[Sequence[Any]]:
        """A block in the middle is watched for races and counted, or all with `counters`."""
        if self.backend.name != "emulator":
            return nullcontext(())
        return watching(
            self.backend, races="sampled", counters="all" if self.settings.counters else "sampled"
        )

    def free(self) -> None:
        """Give the buffers back, borrowers first."""
        for trial in reversed(self._made):
            trial.free()

    def _fail(self, index: int, error: GemmLabError) -> None:
        poisons = isinstance(error, LaunchError) and not isinstance(error, ResourceError)
        if poisons and self.backend.name == "gpu":
            raise PoisonedError(index, error) from error
        self.trials.pop(index, None)
        self.found[index] = error


def _with_times(measured: Measurement, index: int, timed: TimedGroup) -> Measurement:
    if index in timed.too_slow:
        single_ms = timed.too_slow[index]
        note = f"not timed: one call takes {single_ms:.4g} ms, too long for rounds with the others"
        return replace(measured, single_ms=single_ms, warnings=(*measured.warnings, note))
    p = measured.problem
    flop_count = 2 * p.m * p.n * p.k * p.batch
    own: Samples = timed.kernels[index]
    median = summarize(own.samples_ms)
    return replace(
        measured,
        samples_ms=own.samples_ms,
        median_ms=None if median is None else median.median_ms,
        tflops=None if median is None else _tflops(flop_count, median.median_ms),
        launch_bound=own.launch_bound,
        single_ms=own.single_ms,
        baseline=_baseline(timed.baseline, flop_count),
        ratio_to_baseline=None
        if timed.baseline is None
        else paired_ratio(timed.baseline.samples_ms, own.samples_ms),
        clocks=timed.clocks,
        warm_median_ms=timed.warm_median_ms[index],
        warnings=(*measured.warnings, *timed.warnings, *_unresolved(own, timed.baseline)),
    )


def _unresolved(own: Samples, library: TimedBaseline | None) -> tuple[str, ...]:
    """Why there is no rate or no ratio, when the clock gave a time of nothing."""
    found = []
    if own.samples_ms and min(own.samples_ms) <= 0:
        found.append("a sample took 0 ms, less than the clock resolves: no ratio, perhaps no rate")
    if library is not None and library.samples_ms and min(library.samples_ms) <= 0:
        found.append(f"a sample of {library.name} took 0 ms: no ratio")
    return tuple(found)


def _baseline(found: TimedBaseline | None, flop_count: int) -> Baseline | None:
    if found is None:
        return None
    summary = summarize(found.samples_ms)
    return Baseline(
        name=found.name,
        compute_type=found.compute_type,
        samples_ms=found.samples_ms,
        median_ms=None if summary is None else summary.median_ms,
        tflops=None if summary is None else _tflops(flop_count, summary.median_ms),
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
