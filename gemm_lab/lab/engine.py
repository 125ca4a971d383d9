"""The one engine behind sweep and bench: resume, compile, measure group by group, keep each."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from gemm_lab import jit
from gemm_lab.core.measurement import Measurement
from gemm_lab.errors import GemmLabError, UsageError
from gemm_lab.lab.candidates import Candidate, Target
from gemm_lab.lab.describe import describe_command, measured_problem
from gemm_lab.lab.journal import Journal
from gemm_lab.lab.keys import measurement_key
from gemm_lab.lab.measure import RunSettings
from gemm_lab.lab.progress import Progress
from gemm_lab.lab.results import Pruned, Results
from gemm_lab.lab.runner import IsolatedRunner, LocalRunner, Runner
from gemm_lab.lab.station import StationPlan
from gemm_lab.lab.timing import is_too_slow
from gemm_lab.lab.workbench import BackendName, Workbench

__all__ = ["Keeping", "execute", "failure", "open_runner", "station_plan"]

_COMPILE_BATCH = 256


@dataclass(frozen=True, kw_only=True)
class Keeping:
    """Where measurements go and what is taken from there.

    Attributes:
        output: the journal; None keeps nothing on disk.
        resume: pass over what the journal has.
        retry_failed: measure those again that failed.
    """

    output: Path | None = None
    resume: bool = True
    retry_failed: bool = False

    def open(self) -> AbstractContextManager[Journal | None]:
        """The journal, or nothing."""
        return nullcontext() if self.output is None else Journal(self.output)

    def done(self, journal: Journal | None, settings: RunSettings) -> dict[str, Measurement]:
        """What need not be measured again, by key."""
        if journal is None or not self.resume:
            return {}
        return {
            measurement_key(m): m
            for m in journal.before.measurements
            if _suffices(m, settings) and (m.error is None or not self.retry_failed)
        }


def _suffices(m: Measurement, settings: RunSettings) -> bool:
    if m.error is not None or 0 in (m.problem.m, m.problem.n, m.problem.batch):
        return True
    if settings.verify and m.verified is None:
        return False
    if settings.time and m.backend == "gpu" and m.problem.k > 0:
        if m.single_ms is not None and not m.samples_ms:  # too slow for the time at hand then
            return is_too_slow(m.single_ms, settings.max_seconds)
        return bool(m.samples_ms) and (m.baseline is not None or not settings.baseline)
    return True


def station_plan(
    bench: Workbench,
    backend: BackendName,
    *,
    lowest_arch: str,
    arch: str | None,
    device: int | None,
) -> StationPlan:
    """A station on the backend that the user means; NoGpuError when there is no such GPU."""
    if backend == "none":
        raise UsageError(
            "there is nothing to measure without a backend", hint="--backend auto, gpu or emulator"
        )
    chosen = bench.choose_backend(backend, lowest_arch=lowest_arch, arch=arch, device=device)
    cache = bench.cache_directory
    folder = None if cache is None else os.fspath(cache)
    if chosen.backend.name == "gpu":
        return StationPlan(
            maker="gemm_lab.lab.station:gpu_station",
            arguments={"device": device, "cache_directory": folder},
        )
    return StationPlan(
        maker="gemm_lab.lab.station:emulator_station",
        arguments={"arch": chosen.backend.arch, "cache_directory": folder},
    )


def open_runner(plan: StationPlan, *, isolate: bool | None, timeout_s: float) -> Runner:
    """In a worker that may die, or here; None isolates all but the emulator."""
    if isolate is None:
        isolate = not plan.maker.endswith(":emulator_station")
    if isolate:
        return IsolatedRunner(plan, timeout_s=timeout_s)
    return LocalRunner(plan.make())


def execute(
    groups: Sequence[Sequence[Candidate]],
    *,
    runner: Runner,
    keeping: Keeping,
    settings: RunSettings,
    progress: Progress,
    pruned: Sequence[Pruned] = (),
    cache: jit.Cache | None = None,
) -> Results:
    """Measure groups of candidates; each group has one problem and shares its rounds.

    A measurement counts as done when the journal has it on disk. Ctrl-C ends it early and keeps
    what is done. A group of which the journal lacks a part is measured whole: ratios between
    its members are worth something only within the same rounds.
    """
    with keeping.open() as journal, progress:
        done = keeping.done(journal, settings)
        left: list[Sequence[Candidate]] = []
        found: dict[str, Measurement] = {}
        for group in groups:
            if all(c.key in done for c in group):
                found.update({c.key: done[c.key] for c in group})
            else:
                left.append(group)
        resumed = len(found)
        if journal is not None:
            _tell_damage(journal, progress)
        if resumed:
            progress.say(f"{resumed} measurements are in {keeping.output} already")
        recorder = _Recorder(journal, progress, found)
        interrupted = False
        try:
            _measure_all(left, runner, settings, progress, recorder, cache)
        except KeyboardInterrupt:
            interrupted = True
            progress.say(f"interrupted: {len(found)} measurements are done")
    order = [c.key for g in groups for c in g]
    return Results(
        (found[key] for key in order if key in found),
        pruned=pruned,
        resumed=resumed,
        interrupted=interrupted,
    )


def _measure_all(
    groups: Sequence[Sequence[Candidate]],
    runner: Runner,
    settings: RunSettings,
    progress: Progress,
    recorder: _Recorder,
    cache: jit.Cache | None,
) -> None:
    target = runner.target
    plain = replace(settings, progress=None)
    total = sum(len(g) for g in groups)
    for batch in _batches(groups):
        hits = _compile(batch, progress, recorder, target, settings, cache)
        progress.start("measuring", total - recorder.count)
        for group in batch:
            sound = [c for c in group if c.key in hits]
            if not sound:
                continue
            progress.note(f"{sound[0].request.variant.name} {sound[0].problem.shape}")
            outcomes = runner.run(sound, plain, progress.note)
            for candidate, outcome in zip(sound, outcomes, strict=True):
                if isinstance(outcome, Measurement):
                    made = replace(outcome, cache_hit=hits[candidate.key])
                else:
                    made = failure(candidate, target, settings, outcome)
                recorder.keep(candidate, made)


def _compile(
    groups: Sequence[Sequence[Candidate]],
    progress: Progress,
    recorder: _Recorder,
    target: Target,
    settings: RunSettings,
    cache: jit.Cache | None,
) -> Mapping[str, bool]:
    """Whether the cache had it, by key; a candidate that does not compile is recorded so."""
    candidates = [c for g in groups for c in g]
    progress.start("compiling", len(candidates))
    before = 0

    def advance(done: int, _total: int) -> None:
        nonlocal before
        progress.advance(done - before)
        before = done

    compiled = jit.compile_many([c.rendered for c in candidates], cache=cache, progress=advance)
    hits: dict[str, bool] = {}
    for candidate, outcome in zip(candidates, compiled, strict=True):
        if isinstance(outcome, GemmLabError):
            recorder.keep(candidate, failure(candidate, target, settings, outcome))
        else:
            hits[candidate.key] = outcome.cache_hit
    return hits


def _batches(groups: Sequence[Sequence[Candidate]]) -> list[list[Sequence[Candidate]]]:
    """Groups in portions, so that a long sweep shows results soon and holds few kernels."""
    found: list[list[Sequence[Candidate]]] = []
    size = _COMPILE_BATCH
    for group in groups:
        if size >= _COMPILE_BATCH:
            found.append([])
            size = 0
        found[-1].append(group)
        size += len(group)
    return found


class _Recorder:
    """Keeps a measurement on disk, then shows it as done."""

    def __init__(
        self, journal: Journal | None, progress: Progress, found: dict[str, Measurement]
    ) -> None:
        self._journal = journal
        self._progress = progress
        self._found = found
        self.count = 0

    def keep(self, candidate: Candidate, measurement: Measurement) -> None:
        measurement = replace(measurement, choice_rank=candidate.choice_rank)
        if self._journal is not None:
            self._journal.append(measurement)
        self._found[candidate.key] = measurement
        self.count += 1
        self._progress.advance()


def failure(
    candidate: Candidate, target: Target, settings: RunSettings, error: GemmLabError
) -> Measurement:
    """The record of a candidate that gave no result."""
    request, problem = candidate.request, candidate.problem
    return Measurement(
        command=describe_command(request, problem, target.backend, settings.seed),
        variant=request.variant.name,
        source_sha256=candidate.rendered.source_sha256,
        config=dict(request.config),
        problem=measured_problem(problem),
        backend=target.backend,
        device=target.device,
        arch=candidate.rendered.arch,
        seed=settings.seed,
        smem_pad_bytes=request.smem_pad_bytes,
        bias=problem.bias,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        error=error.message,
    )


def _tell_damage(journal: Journal, progress: Progress) -> None:
    if journal.moved_aside:
        progress.say(f"a torn last line was moved to {journal.path}.torn")
    for bad in journal.before.damaged[: 3 if not journal.moved_aside else 0]:
        progress.say(f"{journal.path}:{bad.line} {bad.reason} and is passed over")
