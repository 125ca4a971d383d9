"""Timing of kernels whose length is known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from gpu_helpers import compiled

from gemm_lab.core.backend import Pointer, Scalar
from gemm_lab.core.kernel import KernelLaunch
from gemm_lab.core.statistics import paired_ratio
from gemm_lab.gpu import GpuBackend
from gemm_lab.gpu.clocks import ClockMeter
from gemm_lab.gpu.stopwatch import CudaStopwatch
from gemm_lab.gpu.timing import Runner, TimingSettings, measure_interleaved
from gemm_lab.jit import Cache

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def backend() -> GpuBackend:
    return GpuBackend()


@pytest.fixture(scope="module")
def spin(backend: GpuBackend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Makes a runner that takes so many SM cycles."""
    loaded = backend.load(compiled(backend, Cache(tmp_path_factory.mktemp("cache"))))
    x = backend.upload(np.zeros(32, np.float32))

    def make(cycles: int) -> Runner:
        prepared = backend.prepare(
            loaded,
            KernelLaunch(
                entry="spin", grid=(1, 1, 1), block=(32, 1, 1), smem_bytes=0, params=("c", "x")
            ),
            [Scalar("long long", cycles), Pointer(0)],
        )
        return lambda index: prepared.launch((x.address,))

    yield make
    backend.free(x)


@pytest.mark.parametrize("cycles", [2_000, 200_000])
def test_twice_the_cycles_take_twice_the_time(backend: GpuBackend, spin: Any, cycles: int) -> None:
    runners = {"once": spin(cycles), "twice": spin(2 * cycles), "again": spin(cycles)}
    timed = measure_interleaved(
        runners,
        stopwatch=CudaStopwatch(backend.device),
        meter=ClockMeter(backend.device),
        settings=TimingSettings(max_seconds=2.0),
    )
    assert timed.mode == ("graph" if cycles == 2_000 else "events")
    assert timed.samples["once"].launch_bound == (cycles == 2_000)
    once, twice, again = (timed.samples[n].samples_ms for n in ("once", "twice", "again"))
    double = paired_ratio(twice, once)
    same = paired_ratio(again, once)
    assert double is not None
    assert same is not None
    if cycles == 200_000:
        assert double.median == pytest.approx(2.0, rel=0.03)
    else:  # a launch costs a microsecond or two in a graph as well
        assert 1.2 < double.median < 2.1
    assert same.median == pytest.approx(1.0, abs=0.02)


def test_clocks_are_read(backend: GpuBackend, spin: Any) -> None:
    meter = ClockMeter(backend.device)
    if not meter.available:
        pytest.skip("NVML does not answer")
    timed = measure_interleaved(
        {"a": spin(1_000_000)}, stopwatch=CudaStopwatch(backend.device), meter=meter
    )
    assert timed.clocks is not None
    assert 100 < timed.clocks.sm_mhz_median < 4000
    assert timed.clocks.power_w_max > 1
