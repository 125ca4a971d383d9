"""compare: is B faster than A, slower, the same, or can nobody say?

The figure is time A / time B (above 1: B is faster) with an interval that assumes no shape. Within
one run it comes from pairs, round by round. Between two runs, whose clocks and cards are not the
same, each time is first held against the library in its own rounds, and the ratios to it are
compared: intervals of two medians are joined by Zou and Donner's MOVER (Statistics in Medicine
27, 2008), on logarithms.

With a margin of 1%: "same" when the whole interval lies within 1% of 1; "slower" when all of it
lies under 1 and its median at or under 0.99, "faster" likewise above; "unclear" otherwise. Several
comparisons share one confidence (Bonferroni), so that 40 shapes do not make a false alarm likely.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import astuple, dataclass
from typing import Literal

from gemm_lab.core.measurement import MeasuredProblem, Measurement, Ratio
from gemm_lab.core.statistics import median_interval
from gemm_lab.errors import UsageError
from gemm_lab.lab.results import Results

__all__ = [
    "CONFIDENCE",
    "MARGIN",
    "SHORT_MARGIN",
    "SHORT_MS",
    "Basis",
    "Comparison",
    "Comparisons",
    "Verdict",
    "classify",
    "compare_pair",
    "compare_results",
    "paired_interval",
    "runs_interval",
]

Verdict = Literal["same", "faster", "slower", "unclear", "broken"]
Basis = Literal["rounds", "baseline", "times", "none"]
CONFIDENCE = 0.95
MARGIN = 0.01
# Between runs, short kernels vary more than their samples tell.
SHORT_MARGIN = 0.02
SHORT_MS = 0.05


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A and B on one problem.

    Attributes:
        ratio: time A / time B, above 1 when B is faster; None without times.
        basis: pairs within shared rounds, ratios to the library, or bare times.
        verdict: "broken" when A gave a right result and B does not.
    """

    name: str
    problem: MeasuredProblem
    verdict: Verdict
    ratio: Ratio | None
    basis: Basis
    margin: float
    confidence: float
    a_ms: float | None
    b_ms: float | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Comparisons:
    """All pairs that were found, and how many measurements of either side had no partner."""

    pairs: tuple[Comparison, ...]
    only_a: int
    only_b: int

    def count(self, verdict: Verdict) -> int:
        """How many got that verdict."""
        return sum(p.verdict == verdict for p in self.pairs)

    def regressions(self, *, fail_on: Literal["slower", "unclear"] = "slower") -> list[Comparison]:
        """Pairs on which a run should fail; "unclear" means whatever is not same or faster."""
        bad = {"slower", "broken"} | ({"unclear"} if fail_on == "unclear" else set())
        return [p for p in self.pairs if p.verdict in bad]


def classify(ratio: Ratio, margin: float) -> Verdict:
    """The verdict on time A / time B with its interval."""
    if ratio.low >= 1 - margin and ratio.high <= 1 + margin:
        return "same"
    if ratio.high < 1 and ratio.median <= 1 - margin:
        return "slower"
    if ratio.low > 1 and ratio.median >= 1 + margin:
        return "faster"
    return "unclear"


def paired_interval(
    a_ms: Sequence[float], b_ms: Sequence[float], confidence: float = CONFIDENCE
) -> Ratio:
    """Median of a / b over the rounds, with its interval."""
    ratios = [a / b for a, b in zip(a_ms, b_ms, strict=True)]
    low, high = median_interval(ratios, confidence)
    return Ratio(median=statistics.median(ratios), low=low, high=high)


def runs_interval(
    a_ratios: Sequence[float], b_ratios: Sequence[float], confidence: float = CONFIDENCE
) -> Ratio:
    """Median of B's ratios over that of A's, which are of another run; MOVER on logarithms."""
    a, b = [math.log(x) for x in a_ratios], [math.log(x) for x in b_ratios]
    (a_low, a_high), (b_low, b_high) = (
        median_interval(a, confidence),
        median_interval(b, confidence),
    )
    a_mid, b_mid = statistics.median(a), statistics.median(b)
    middle = b_mid - a_mid
    return Ratio(
        median=math.exp(middle),
        low=math.exp(middle - math.hypot(b_mid - b_low, a_high - a_mid)),
        high=math.exp(middle + math.hypot(b_high - b_mid, a_mid - a_low)),
    )


def samples_needed(confidence: float) -> int:
    """The fewest samples whose range covers the median with that confidence."""
    return math.ceil(1 + math.log2(1 / (1 - confidence)))


def compare_pair(
    a: Measurement,
    b: Measurement,
    *,
    margin: float | None = None,
    confidence: float = CONFIDENCE,
    name: str | None = None,
) -> Comparison:
    """Two measurements of one problem; in pairs when they shared their rounds."""
    notes: list[str] = []
    basis, ratio = _ratio(a, b, confidence)
    if a.device != b.device:
        notes.append(f"different cards: {a.device} and {b.device}")
    if basis == "times":
        notes.append("no library was timed beside both: the state of the card is not cancelled")
    if margin is None:
        short = min(a.median_ms or math.inf, b.median_ms or math.inf) < SHORT_MS
        margin = SHORT_MARGIN if short and basis != "rounds" else MARGIN
    if _right(a) and not _right(b):
        verdict: Verdict = "broken"
        notes.append(b.error or "the result of B is wrong")
    elif not _right(a) or not _right(b) or ratio is None:
        verdict = "unclear"
        notes.append("no right, timed result to compare")
    elif min(len(a.samples_ms), len(b.samples_ms)) < samples_needed(confidence):
        verdict = "unclear"
        notes.append(f"fewer than {samples_needed(confidence)} samples")
    else:
        verdict = classify(ratio, margin)
    return Comparison(
        name=name or (a.variant if a.variant == b.variant else f"{a.variant} -> {b.variant}"),
        problem=a.problem,
        verdict=verdict,
        ratio=ratio,
        basis=basis,
        margin=margin,
        confidence=confidence,
        a_ms=a.median_ms,
        b_ms=b.median_ms,
        notes=tuple(notes),
    )


def compare_results(
    a: Results,
    b: Results,
    *,
    margin: float | None = None,
    confidence: float = CONFIDENCE,
    by: Literal["auto", "kernel", "problem"] = "auto",
) -> Comparisons:
    """Two runs, matched by variant, tunables and problem, or by problem alone.

    By problem, the fastest right kernel of either side stands for it. "auto" does that when no
    kernel is in both. UsageError when nothing matches.
    """
    found = _match(a, b, _kernel_key) if by != "problem" else {}
    if not found and by != "kernel":
        found = _match(_fastest(a), _fastest(b), _problem_key)
    if not found:
        raise UsageError(
            "the two have no kernel and no problem in common",
            hint="run both with the same shapes, dtype and layout",
        )
    each = 1 - (1 - confidence) / len(found)
    pairs = [compare_pair(x, y, margin=margin, confidence=each) for x, y in found.values()]
    return Comparisons(
        pairs=tuple(pairs),
        only_a=len({_kernel_key(m) for m in a}) - len(found),
        only_b=len({_kernel_key(m) for m in b}) - len(found),
    )


def _ratio(a: Measurement, b: Measurement, confidence: float) -> tuple[Basis, Ratio | None]:
    times = (*a.samples_ms, *b.samples_ms)
    if not a.samples_ms or not b.samples_ms or min(times) <= 0:
        return "none", None
    if a.group is not None and a.group == b.group and len(a.samples_ms) == len(b.samples_ms):
        return "rounds", paired_interval(a.samples_ms, b.samples_ms, confidence)
    if _has_library(a) and _has_library(b):
        return "baseline", runs_interval(_to_library(a), _to_library(b), confidence)
    speeds_a, speeds_b = [1 / x for x in a.samples_ms], [1 / x for x in b.samples_ms]
    return "times", runs_interval(speeds_a, speeds_b, confidence)


def _has_library(m: Measurement) -> bool:
    """Whether every sample has a time of the library beside it, above zero."""
    beside = () if m.baseline is None else m.baseline.samples_ms
    return len(beside) == len(m.samples_ms) and min(beside) > 0


def _to_library(m: Measurement) -> list[float]:
    assert m.baseline is not None
    return [x / y for x, y in zip(m.baseline.samples_ms, m.samples_ms, strict=True)]


def _right(m: Measurement) -> bool:
    return m.error is None and m.verified is not False


def _match(
    a: Iterable[Measurement], b: Iterable[Measurement], key: Callable[[Measurement], Hashable]
) -> dict[Hashable, tuple[Measurement, Measurement]]:
    of_a, of_b = {key(m): m for m in a}, {key(m): m for m in b}
    return {k: (m, of_b[k]) for k, m in of_a.items() if k in of_b}


def _kernel_key(m: Measurement) -> Hashable:
    config = tuple(sorted((k, repr(v)) for k, v in m.config.items()))
    return (m.variant, config, m.smem_pad_bytes, _problem_key(m))


def _problem_key(m: Measurement) -> Hashable:
    return (*astuple(m.problem), m.bias)


def _fastest(results: Results) -> list[Measurement]:
    best: dict[Hashable, Measurement] = {}
    for m in results.right:
        key = _problem_key(m)
        if key not in best or (m.median_ms or math.inf) < (best[key].median_ms or math.inf):
            best[key] = m
    return list(best.values())
