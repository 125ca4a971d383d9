"""Statistics of timings: medians, spreads, paired ratios with an interval that assumes no shape."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from gemm_lab.core.measurement import Ratio

__all__ = [
    "Summary",
    "median_interval",
    "paired_ratio",
    "quantile",
    "relative_standard_error",
    "summarize",
]


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Of samples in milliseconds: median, quartiles, extremes, how many."""

    median_ms: float
    q1_ms: float
    q3_ms: float
    min_ms: float
    max_ms: float
    count: int

    @property
    def iqr_ms(self) -> float:
        """Distance between the quartiles."""
        return self.q3_ms - self.q1_ms


def quantile(samples: Sequence[float], fraction: float) -> float:
    """Linear interpolation between order statistics (NumPy's default); needs one sample."""
    ordered = sorted(samples)
    place = fraction * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def summarize(samples_ms: Sequence[float]) -> Summary | None:
    """The summary, or None when there is no sample."""
    if not samples_ms:
        return None
    return Summary(
        median_ms=statistics.median(samples_ms),
        q1_ms=quantile(samples_ms, 0.25),
        q3_ms=quantile(samples_ms, 0.75),
        min_ms=min(samples_ms),
        max_ms=max(samples_ms),
        count=len(samples_ms),
    )


def relative_standard_error(samples: Sequence[float]) -> float:
    """Standard error of the mean over the mean; infinite below two samples or at a mean of 0."""
    if len(samples) < 2:
        return math.inf
    mean = statistics.fmean(samples)
    if mean <= 0:
        return math.inf
    return statistics.stdev(samples, mean) / math.sqrt(len(samples)) / mean


def median_interval(samples: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Low and high end of a confidence interval of the median, from order statistics.

    The number of samples below the true median is binomial(n, 1/2); the interval takes the
    innermost pair of order statistics that covers it with at least `confidence`. With too few
    samples for that (5 and fewer at 95%) it is the whole range.
    """
    ordered = sorted(samples)
    count = len(ordered)
    if not count:
        raise ValueError("an interval needs a sample")
    tail = (1.0 - confidence) / 2.0
    # Largest r with P(binomial < r) <= tail; ends are then the r-th from either side.
    below, rank = 0.0, 0
    log_all = count * math.log(2.0)
    while rank < (count + 1) // 2:
        below += math.exp(_log_choose(count, rank) - log_all)
        if below > tail:
            break
        rank += 1
    first = max(rank - 1, 0)
    return ordered[first], ordered[count - 1 - first]


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


def paired_ratio(baseline_ms: Sequence[float], kernel_ms: Sequence[float]) -> Ratio | None:
    """Median of baseline / kernel over rounds, with its 95% interval; above 1 the kernel is faster.

    The two must come from the same rounds, in order; None without a round, or when a time is not
    above zero.
    """
    if len(baseline_ms) != len(kernel_ms):
        raise ValueError(f"{len(baseline_ms)} baseline samples for {len(kernel_ms)} of the kernel")
    if not baseline_ms or min(*baseline_ms, *kernel_ms) <= 0:
        return None
    ratios = [b / k for b, k in zip(baseline_ms, kernel_ms, strict=True)]
    low, high = median_interval(ratios)
    return Ratio(median=statistics.median(ratios), low=low, high=high)
