"""Measurements for tests, made by hand."""

from __future__ import annotations

import random
from typing import Any

from gemm_lab.core.measurement import Baseline, MeasuredProblem, Measurement
from gemm_lab.core.statistics import paired_ratio, summarize


def problem(m: int = 64, **other: Any) -> MeasuredProblem:
    """A plain fp32 product."""
    facts: dict[str, Any] = {
        "m": m, "n": m, "k": m, "batch": 1, "dtype": "fp32", "out_dtype": "fp32",
        "layout": "nn", "alpha": 1.0, "beta": 0.0, "epilogue": None,
    }  # fmt: skip
    return MeasuredProblem(**{**facts, **other})


def measurement(number: int = 0, **other: Any) -> Measurement:
    """A measurement that differs from others by `number`, its seed."""
    facts: dict[str, Any] = {
        "command": "gemm-lab run naive",
        "variant": "naive",
        "source_sha256": "0" * 64,
        "config": {"BLOCK_SIZE": 16},
        "problem": problem(),
        "backend": "gpu",
        "device": "Fake GPU",
        "arch": "sm_80",
        "seed": number,
        "verified": True,
    }
    return Measurement(**{**facts, **other})


def timed(
    kernel_ms: list[float], baseline_ms: list[float] | None = None, **other: Any
) -> Measurement:
    """One with samples, and the baseline's beside them."""
    size = other.get("problem", problem())
    flop_count = 2 * size.m * size.n * size.k
    summary = summarize(kernel_ms)
    assert summary is not None
    base = None
    if baseline_ms is not None:
        middle = summarize(baseline_ms)
        assert middle is not None
        base = Baseline(
            name="fakeBLAS",
            compute_type="FAKE_32F",
            samples_ms=tuple(baseline_ms),
            median_ms=middle.median_ms,
            tflops=flop_count / middle.median_ms / 1e9,
        )
    return measurement(
        samples_ms=tuple(kernel_ms),
        median_ms=summary.median_ms,
        tflops=flop_count / summary.median_ms / 1e9,
        baseline=base,
        ratio_to_baseline=None if baseline_ms is None else paired_ratio(baseline_ms, kernel_ms),
        **other,
    )


class Card:
    """Times as a real card gives them: a clock that wanders, a long tail, a level a run."""

    def __init__(self, seed: int, *, noise: float = 0.004, tail: float = 0.03) -> None:
        self.random = random.Random(seed)
        self.noise = noise
        self.tail = tail
        self.drift = 1.0

    def round(self, *lengths_ms: float) -> list[float]:
        """One sample of each: the drift is shared, noise and outliers are not."""
        taken = []
        for length in lengths_ms:
            self.drift *= 1 + self.random.gauss(0, 0.0005)
            self.drift += (1 - self.drift) * 0.02
            ms = length * self.drift * (1 + self.random.gauss(0, self.noise))
            if self.random.random() < self.tail:
                ms *= 1 + self.random.expovariate(20)
            taken.append(ms)
        return taken

    def samples(self, rounds: int, *lengths_ms: float) -> list[list[float]]:
        """One list a length."""
        return [
            list(x) for x in zip(*(self.round(*lengths_ms) for _ in range(rounds)), strict=True)
        ]
