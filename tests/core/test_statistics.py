"""Order statistics against NumPy, and intervals against their promise."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemm_lab.core.statistics import (
    median_interval,
    paired_ratio,
    quantile,
    relative_standard_error,
    summarize,
)

times = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=60)


@given(samples=times, fraction=st.floats(0, 1))
def test_quantile_is_numpys(samples: list[float], fraction: float) -> None:
    assert quantile(samples, fraction) == pytest.approx(np.quantile(samples, fraction))


@given(samples=times)
def test_summary(samples: list[float]) -> None:
    summary = summarize(samples)
    assert summary is not None
    assert summary.median_ms == pytest.approx(np.median(samples))
    assert summary.min_ms <= summary.q1_ms <= summary.q3_ms <= summary.max_ms
    assert summary.iqr_ms >= 0
    assert summarize([]) is None


@given(samples=times)
def test_interval_holds_the_median(samples: list[float]) -> None:
    low, high = median_interval(samples)
    assert low <= statistics.median(samples) <= high


@pytest.mark.parametrize(("count", "rank"), [(5, 1), (6, 1), (9, 2), (20, 6), (100, 40)])
def test_interval_ranks_are_those_of_the_sign_test(count: int, rank: int) -> None:
    low, high = median_interval([float(i) for i in range(1, count + 1)])
    assert (low, high) == (rank, count + 1 - rank)


def test_interval_covers_as_promised() -> None:
    random = np.random.default_rng(7)
    hits = 0
    for _ in range(1000):
        low, high = median_interval(list(random.lognormal(size=31)))
        hits += low <= 1.0 <= high  # the median of a lognormal
    assert hits >= 935


def test_relative_standard_error() -> None:
    assert relative_standard_error([2.0]) == math.inf
    assert relative_standard_error([0.0, 0.0]) == math.inf
    samples = [9.0, 10.0, 11.0, 10.0]
    expected = float(np.std(samples, ddof=1)) / 2.0 / 10.0
    assert relative_standard_error(samples) == pytest.approx(expected)


def test_paired_ratio_cancels_what_both_share() -> None:
    random = np.random.default_rng(3)
    drift = random.uniform(1, 2, size=40)  # the clock wanders by a factor of two
    ratio = paired_ratio(list(2.0 * drift), list(1.0 * drift))
    assert ratio is not None
    assert (ratio.median, ratio.low, ratio.high) == pytest.approx((2.0, 2.0, 2.0))


def test_paired_ratio_that_cannot_be() -> None:
    assert paired_ratio([], []) is None
    assert paired_ratio([1.0, 1.0], [1.0, 0.0]) is None
    with pytest.raises(ValueError, match="1 baseline samples for 2"):
        paired_ratio([1.0], [1.0, 2.0])
