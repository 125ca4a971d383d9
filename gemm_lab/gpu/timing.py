"""How long things take on the card, measured so that two of them can be compared.

Candidate and baselines run in the same rounds, in an order that a seed shuffles; each round gives
one sample of each. Events surround every sample and are read after one sync a chunk of rounds.
Where one launch is shorter than `graph_below_us`, every sample is a CUDA graph of many launches.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from gemm_lab.core.statistics import Summary, relative_standard_error, summarize
from gemm_lab.errors import UsageError
from gemm_lab.gpu.clocks import ClockMeter, Clocks

__all__ = [
    "Rotation",
    "Runner",
    "Samples",
    "Timed",
    "TimingSettings",
    "measure_interleaved",
    "rotation",
]

Runner = Callable[[int], None]
Progress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class TimingSettings:
    """When to begin and when to stop.

    Attributes:
        seed: of the order within rounds.
        min_rounds, max_rounds: samples of each runner.
        max_seconds: of device time for all rounds together; the first chunk is always finished.
        target_error: relative standard error at which every runner is settled.
        graph_below_us: single launches shorter than this are timed many to a graph.
        graph_us: device time that one graph should take.
        settle: whether to warm the device until its clock settles (once a process and device).
    """

    seed: int = 0
    min_rounds: int = 20
    max_rounds: int = 400
    max_seconds: float = 10.0
    target_error: float = 0.005
    graph_below_us: float = 20.0
    graph_us: float = 500.0
    settle: bool = True


@dataclass(frozen=True, kw_only=True)
class Samples:
    """One runner's times, a sample a round, in the order of the rounds.

    `launches_per_sample` is 1 but in a graph, whose time is divided by it. `launch_bound`: one
    launch is so short that its start weighs as much; `single_ms` is what one alone took.
    """

    name: str
    samples_ms: tuple[float, ...]
    single_ms: float
    launches_per_sample: int
    launch_bound: bool

    @property
    def summary(self) -> Summary | None:
        """Median, quartiles, extremes."""
        return summarize(self.samples_ms)


@dataclass(frozen=True, kw_only=True)
class Timed:
    """What one interleaved measurement gave."""

    samples: Mapping[str, Samples]
    mode: Literal["events", "graph"]
    rounds: int
    stopped: Literal["settled", "rounds", "seconds"]
    clocks: Clocks | None
    warnings: tuple[str, ...] = field(default=())


@dataclass(frozen=True, kw_only=True)
class Rotation:
    """How many buffer sets to go round; `cold`: together they exceed twice the L2 cache."""

    sets: int
    cold: bool


def rotation(
    bytes_per_set: int, *, l2_bytes: int, free_bytes: int, most_sets: int = 256
) -> Rotation:
    """Sets whose inputs together reach twice the L2 cache, within a half of the free memory."""
    needed = max(-(-2 * l2_bytes // max(bytes_per_set, 1)), 1)
    affordable = max(free_bytes // 2 // max(bytes_per_set, 1), 1)
    sets = min(needed, affordable, most_sets)
    return Rotation(sets=sets, cold=sets >= needed)


class Stopwatch(Protocol):
    """Device time of callables. The real one is `gpu.stopwatch.CudaStopwatch`."""

    def settle(self, run: Callable[[], None]) -> None:
        """Keep the device busy with `run` until its clock is steady."""

    def time_chunk(self, runs: Sequence[Callable[[], None]]) -> list[float]:
        """Milliseconds of each, queued back to back, one sync at the end."""

    def graph(self, runs: Sequence[Callable[[], None]]) -> Callable[[], None] | None:
        """One launch that does all of `runs`; None when they cannot be captured."""


def measure_interleaved(
    runners: Mapping[str, Runner],
    *,
    stopwatch: Stopwatch,
    set_count: int = 1,
    settings: TimingSettings | None = None,
    meter: ClockMeter | None = None,
    progress: Progress | None = None,
) -> Timed:
    """Time every runner in shuffled rounds.

    A runner is called with the index of a buffer set, 0 to set_count - 1, and starts its work on
    CuPy's current stream. Every call takes the next set, whoever calls, so that no runner finds
    its inputs warmed by the one before. `progress(rounds done, at most)` is called after each
    chunk. What the runners raise passes through.
    """
    if not runners:
        raise UsageError("there is nothing to time")
    settings = settings or TimingSettings()
    sets = _cycle(set_count)
    single = {name: _single_ms(run, stopwatch, sets) for name, run in runners.items()}
    if settings.settle:
        longest = max(single, key=single.__getitem__)
        stopwatch.settle(lambda: runners[longest](next(sets)))
        # What was measured on a cold clock was too slow.
        single = {name: _single_ms(run, stopwatch, sets) for name, run in runners.items()}
    plan = _plan(runners, single, stopwatch, sets, set_count, settings)
    samples, stopped = _rounds(plan.starts, single, plan, stopwatch, settings, meter, progress)
    return Timed(
        samples={
            name: Samples(
                name=name,
                samples_ms=tuple(ms / plan.launches[name] for ms in samples[name]),
                single_ms=single[name],
                launches_per_sample=plan.launches[name],
                launch_bound=single[name] * 1000.0 < settings.graph_below_us,
            )
            for name in runners
        },
        mode="graph" if plan.graph else "events",
        rounds=len(next(iter(samples.values()))),
        stopped=stopped,
        clocks=meter.clocks() if meter else None,
        warnings=plan.warnings,
    )


@dataclass(frozen=True, kw_only=True)
class _Plan:
    starts: Mapping[str, Callable[[], None]]
    launches: Mapping[str, int]
    graph: bool
    warnings: tuple[str, ...] = ()


def _cycle(set_count: int) -> Iterator[int]:
    index = 0
    while True:
        yield index
        index = (index + 1) % set_count


def _single_ms(run: Runner, stopwatch: Stopwatch, sets: Iterator[int]) -> float:
    # The first call may load code and allocate.
    stopwatch.time_chunk([_bound(run, next(sets))])
    return statistics.median(stopwatch.time_chunk([_bound(run, next(sets)) for _ in range(5)]))


def _bound(run: Runner, index: int) -> Callable[[], None]:
    return lambda: run(index)


def _plan(
    runners: Mapping[str, Runner],
    single: Mapping[str, float],
    stopwatch: Stopwatch,
    sets: Iterator[int],
    set_count: int,
    settings: TimingSettings,
) -> _Plan:
    """Graphs for all runners or for none: a ratio of two ways of measuring means nothing."""
    plain = _Plan(
        starts={name: _next_set(run, sets) for name, run in runners.items()},
        launches=dict.fromkeys(runners, 1),
        graph=False,
    )
    if min(single.values()) * 1000.0 >= settings.graph_below_us:
        return plain
    starts: dict[str, Callable[[], None]] = {}
    launches: dict[str, int] = {}
    for name, run in runners.items():
        count = _launches(single[name], set_count, settings)
        graph = stopwatch.graph([_bound(run, i % set_count) for i in range(count)])
        if graph is None:
            warning = f"{name} cannot be captured into a graph: its times include launches"
            return _Plan(
                starts=plain.starts, launches=plain.launches, graph=False, warnings=(warning,)
            )
        starts[name], launches[name] = graph, count
    return _Plan(starts=starts, launches=launches, graph=True)


def _launches(single_ms: float, set_count: int, settings: TimingSettings) -> int:
    """Enough to fill `graph_us`, and to go round all sets where that is not too long."""
    wanted = int(settings.graph_us / max(single_ms * 1000.0, 1.0)) + 1
    return min(max(wanted, set_count, 8), 512)


def _next_set(run: Runner, sets: Iterator[int]) -> Callable[[], None]:
    return lambda: run(next(sets))


def _rounds(
    starts: Mapping[str, Callable[[], None]],
    single: Mapping[str, float],
    plan: _Plan,
    stopwatch: Stopwatch,
    settings: TimingSettings,
    meter: ClockMeter | None,
    progress: Progress | None,
) -> tuple[dict[str, list[float]], Literal["settled", "rounds", "seconds"]]:
    names = list(starts)
    shuffle = random.Random(settings.seed).shuffle
    samples: dict[str, list[float]] = {name: [] for name in names}
    round_ms = sum(single[name] * plan.launches[name] for name in names)
    spent_ms = 0.0
    done = 0
    while True:
        chunk = _chunk_rounds(round_ms, settings, done)
        order: list[str] = []
        for _ in range(chunk):
            turn = names.copy()
            shuffle(turn)
            order += turn
        for name, ms in zip(order, stopwatch.time_chunk([starts[n] for n in order]), strict=True):
            samples[name].append(ms)
            spent_ms += ms
        if meter:
            meter.read()
        done += chunk
        if progress:
            progress(done, settings.max_rounds)
        if done >= settings.min_rounds and all(
            relative_standard_error(s) < settings.target_error for s in samples.values()
        ):
            return samples, "settled"
        if done >= settings.max_rounds:
            return samples, "rounds"
        if spent_ms >= settings.max_seconds * 1000.0:
            return samples, "seconds"


def _chunk_rounds(round_ms: float, settings: TimingSettings, done: int) -> int:
    """Rounds between two syncs: some 100 ms of work, so that the queue never runs dry."""
    by_time = int(100.0 / max(round_ms, 0.001)) + 1
    return max(min(by_time, settings.min_rounds, settings.max_rounds - done), 1)
