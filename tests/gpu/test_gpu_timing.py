"""The order of rounds, sets, graphs and stopping, against a stopwatch that invents its times."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest

from gemm_lab.core.statistics import paired_ratio
from gemm_lab.errors import UsageError
from gemm_lab.gpu.clocks import ClockMeter, ClockReading, throttle_reasons
from gemm_lab.gpu.timing import TimingSettings, measure_interleaved, rotation


class FakeDevice:
    """Kernels of known length on a clock that wanders; writes down what runs."""

    def __init__(self, *, noise: float = 0.0, drift: float = 0.0, capturable: bool = True) -> None:
        self.random = random.Random(5)
        self.noise = noise
        self.drift = drift
        self.capturable = capturable
        self.clock = 1.0
        self.pending_ms = 0.0
        self.log: list[tuple[str, int]] = []
        self.settled = 0
        self.capturing = False

    def kernel(self, name: str, ms: float) -> Callable[[int], None]:
        def run(index: int) -> None:
            self.log.append((name, index))
            self.pending_ms += ms * self.random.uniform(1, 1 + self.noise)

        return run

    def settle(self, run: Callable[[], None]) -> None:
        self.settled += 1
        run()

    def time_chunk(self, runs: Sequence[Callable[[], None]]) -> list[float]:
        taken = []
        for run in runs:
            self.pending_ms = 0.0
            run()
            self.clock *= 1 + self.drift * self.random.uniform(-1, 1)
            taken.append(self.pending_ms * self.clock)
        return taken

    def graph(self, runs: Sequence[Callable[[], None]]) -> Callable[[], None] | None:
        if not self.capturable:
            return None
        self.pending_ms = 0.0
        for run in runs:
            run()
        total = self.pending_ms

        def start() -> None:
            self.pending_ms += total

        return start


def test_each_round_has_every_runner_once_in_a_seeded_order() -> None:
    orders = []
    for seed in (0, 0, 1):
        device = FakeDevice(noise=0.5)
        runners = {name: device.kernel(name, 1.0) for name in "abc"}
        timed = measure_interleaved(
            runners, stopwatch=device, settings=TimingSettings(seed=seed, max_rounds=30)
        )
        played = [name for name, _ in device.log[-3 * timed.rounds :]]
        rounds = [played[i : i + 3] for i in range(0, len(played), 3)]
        assert all(sorted(turn) == ["a", "b", "c"] for turn in rounds)
        assert len({tuple(turn) for turn in rounds}) > 1
        orders.append(rounds)
        assert all(len(s.samples_ms) == timed.rounds == 30 for s in timed.samples.values())
    assert orders[0] == orders[1] != orders[2]


def test_sets_go_round_whoever_calls() -> None:
    device = FakeDevice()
    runners = {name: device.kernel(name, 1.0) for name in "ab"}
    measure_interleaved(runners, stopwatch=device, set_count=3)
    indices = [index for _, index in device.log]
    assert indices == [i % 3 for i in range(len(indices))]


def test_settled_when_the_error_is_small() -> None:
    device = FakeDevice(noise=0.001)
    timed = measure_interleaved({"a": device.kernel("a", 1.0)}, stopwatch=device)
    assert (timed.stopped, timed.rounds, timed.mode) == ("settled", 20, "events")
    assert device.settled == 1


@pytest.mark.parametrize(
    ("ms", "settings", "stopped"),
    [
        (1.0, TimingSettings(max_rounds=50, target_error=0.0), "rounds"),
        (50.0, TimingSettings(max_seconds=1.0, target_error=0.0), "seconds"),
    ],
)
def test_caps(ms: float, settings: TimingSettings, stopped: str) -> None:
    device = FakeDevice(noise=0.5)
    seen: list[tuple[int, int]] = []
    timed = measure_interleaved(
        {"a": device.kernel("a", ms)},
        stopwatch=device,
        settings=settings,
        progress=lambda done, most: seen.append((done, most)),
    )
    assert timed.stopped == stopped
    assert seen[-1] == (timed.rounds, settings.max_rounds)
    assert timed.rounds <= settings.max_rounds


def test_short_kernels_are_timed_by_graph_for_all_alike() -> None:
    device = FakeDevice()
    runners = {"short": device.kernel("short", 0.004), "long": device.kernel("long", 0.1)}
    timed = measure_interleaved(runners, stopwatch=device, set_count=4)
    assert timed.mode == "graph"
    short, long = timed.samples["short"], timed.samples["long"]
    assert short.launches_per_sample == 126
    assert short.samples_ms[0] == pytest.approx(0.004)
    assert long.samples_ms[0] == pytest.approx(0.1)
    assert (short.launch_bound, long.launch_bound) == (True, False)


def test_no_graph_for_one_means_no_graph_for_any() -> None:
    device = FakeDevice(capturable=False)
    runners = {"a": device.kernel("a", 0.004), "b": device.kernel("b", 1.0)}
    timed = measure_interleaved(runners, stopwatch=device)
    assert timed.mode == "events"
    assert timed.samples["a"].launch_bound
    assert "a cannot be captured" in timed.warnings[0]


@pytest.mark.parametrize("slower", [1.0, 1.02])
def test_pairs_see_through_a_wandering_clock(slower: float) -> None:
    device = FakeDevice(noise=0.004, drift=0.01)
    runners = {"base": device.kernel("base", 1.0), "ours": device.kernel("ours", slower)}
    settings = TimingSettings(target_error=0.0, max_rounds=200)
    timed = measure_interleaved(runners, stopwatch=device, settings=settings)
    ratio = paired_ratio(timed.samples["base"].samples_ms, timed.samples["ours"].samples_ms)
    assert ratio is not None
    assert ratio.low <= 1 / slower <= ratio.high
    assert (ratio.high < 1) == (slower > 1)


def test_nothing_to_time() -> None:
    with pytest.raises(UsageError, match="nothing to time"):
        measure_interleaved({}, stopwatch=FakeDevice())


@pytest.mark.parametrize(
    ("bytes_per_set", "sets", "cold"),
    [(200, 1, True), (100, 1, True), (30, 4, True), (1, 100, True), (0, 100, True)],
)
def test_rotation_reaches_twice_the_cache(bytes_per_set: int, sets: int, cold: bool) -> None:
    found = rotation(bytes_per_set, l2_bytes=50, free_bytes=10**6)
    assert (found.sets, found.cold) == (sets, cold)


def test_rotation_says_when_it_cannot_be_cold() -> None:
    assert not rotation(1, l2_bytes=10**6, free_bytes=10**9).cold
    tight = rotation(40, l2_bytes=50, free_bytes=100)
    assert (tight.sets, tight.cold) == (1, False)


def test_throttle_reasons_in_words() -> None:
    assert throttle_reasons(0x04 | 0x40) == ("power cap", "hardware thermal slowdown")
    assert throttle_reasons(0x01 | 0x02) == ()


def test_clocks_together() -> None:
    meter = ClockMeter.__new__(ClockMeter)
    meter.readings = [
        ClockReading(
            sm_mhz=mhz, memory_mhz=2619, power_w=float(mhz) / 3, temperature_c=50, reasons=bits
        )
        for mhz, bits in ((1980, 0), (1500, 4), (1700, 0))
    ]
    clocks = meter.clocks()
    assert clocks is not None
    assert (clocks.sm_mhz_min, clocks.sm_mhz_median, clocks.sm_mhz_max) == (1500, 1700, 1980)
    assert clocks.throttled == ("power cap",)
    meter.readings = []
    assert meter.clocks() is None
