"""compare on invented cards: noise, drift, outliers; and the verdicts that they must give."""

from __future__ import annotations

import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st
from measurements import Card, measurement, problem, timed

from gemm_lab.core.measurement import Measurement, Ratio
from gemm_lab.errors import UsageError
from gemm_lab.lab.compare import (
    classify,
    compare_pair,
    compare_results,
    paired_interval,
    runs_interval,
    samples_needed,
)
from gemm_lab.lab.results import Results

ROUNDS = 100
positive = st.floats(min_value=0.01, max_value=100)


def together(card: Card, a_ms: float, b_ms: float, rounds: int = ROUNDS) -> tuple[Measurement, ...]:
    """A and B in the same rounds."""
    a, b = card.samples(rounds, a_ms, b_ms)
    return timed(a, group="g"), timed(b, group="g")


def apart(card: Card, kernel_ms: float, rounds: int = 40) -> Measurement:
    """One run, with the library in the same rounds; the card is not in the state of other runs."""
    level = 1 + card.random.uniform(-0.03, 0.03)
    kernel, library = card.samples(rounds, kernel_ms * level, 0.8 * level)
    return timed(kernel, library)


def test_a_kernel_against_itself_is_the_same_20_of_20() -> None:
    for first in range(10):
        said = [
            compare_pair(*together(Card(1000 * first + i), 1.0, 1.0)).verdict for i in range(20)
        ]
        assert said == ["same"] * 20


@pytest.mark.parametrize(("b_ms", "verdict"), [(1.02, "slower"), (1 / 1.02, "faster")])
def test_two_percent_is_seen_19_of_20(b_ms: float, verdict: str) -> None:
    for first in range(10):
        said = [
            compare_pair(*together(Card(1000 * first + i), 1.0, b_ms)).verdict for i in range(20)
        ]
        assert said.count(verdict) >= 19


def test_noise_that_hides_the_difference_is_unclear_and_never_wrong() -> None:
    said = [
        compare_pair(*together(Card(i, noise=0.05), 1.0, 1.0, rounds=20)).verdict
        for i in range(100)
    ]
    assert said.count("unclear") > 90
    assert said.count("slower") + said.count("faster") <= 5


def test_two_runs_are_compared_by_their_ratios_to_the_library() -> None:
    same = [compare_pair(apart(Card(i), 1.0), apart(Card(i + 500), 1.0)) for i in range(40)]
    assert {c.basis for c in same} == {"baseline"}
    assert [c.verdict for c in same].count("same") >= 38
    # The bare times of the same runs differ by up to 6%.
    bare = [abs(1 - (c.a_ms or 0) / (c.b_ms or 1)) for c in same]
    assert max(bare) > 0.03
    slower = [
        compare_pair(apart(Card(i), 1.0), apart(Card(i + 500), 1.02)).verdict for i in range(40)
    ]
    assert slower.count("slower") >= 38


def test_forty_shapes_raise_no_false_alarm() -> None:
    alarms = 0
    for run in range(10):
        sizes = [problem(64 + i) for i in range(40)]
        pairs = [
            [
                timed(*Card(seed + i, noise=0.03).samples(20, 1.0, 1.0), problem=size)
                for i, size in enumerate(sizes)
            ]
            for seed in (10_000 * run, 10_000 * run + 5000)
        ]
        found = compare_results(Results(pairs[0]), Results(pairs[1]), margin=0.001)
        alarms += bool(found.regressions())
    assert alarms <= 1


@given(positive, positive, positive)
def test_classify_is_symmetric(x: float, y: float, z: float) -> None:
    low, median, high = sorted((x, y, z))
    swapped = {"same": "same", "faster": "slower", "slower": "faster", "unclear": "unclear"}
    verdict = classify(Ratio(median=median, low=low, high=high), 0.25)
    other = classify(Ratio(median=1 / median, low=1 / high, high=1 / low), 0.25)
    # The margin is arithmetic, so only the neighbourhood of 1 may differ.
    assert (
        other in (swapped[verdict], "unclear")
        or "unclear" in (verdict, other)
        or ("same" in (verdict, other))
    )
    if verdict == "slower":
        assert high < 1
        assert median <= 0.75
    if verdict == "same":
        assert 0.75 <= low <= high <= 1.25


@given(st.lists(positive, min_size=6, max_size=60))
def test_a_series_against_itself_is_exactly_one(samples: list[float]) -> None:
    ratio = paired_interval(samples, samples)
    assert (ratio.low, ratio.median, ratio.high) == (1.0, 1.0, 1.0)
    runs = runs_interval(samples, samples)
    assert runs.low <= 1.0 <= runs.high
    assert runs.median == pytest.approx(1.0)


@given(st.lists(positive, min_size=6, max_size=40), positive)
def test_scaling_the_card_changes_no_ratio(samples: list[float], factor: float) -> None:
    other = [x * 1.1 for x in reversed(samples)]
    plain = paired_interval(samples, other)
    scaled = paired_interval([x * factor for x in samples], [x * factor for x in other])
    assert scaled.median == pytest.approx(plain.median)
    assert scaled.low == pytest.approx(plain.low)


def test_the_interval_between_runs_covers_the_truth() -> None:
    """95% intervals of a ratio of two medians, on skewed samples, hold the truth in 92% or more."""
    draw = random.Random(8)
    held = 0
    truth = 1.05
    for _ in range(1000):
        a = [draw.lognormvariate(0, 0.02) for _ in range(30)]
        b = [truth * draw.lognormvariate(0, 0.01) for _ in range(50)]
        ratio = runs_interval(a, b)
        held += ratio.low <= truth <= ratio.high
    assert held >= 920


def test_too_few_samples_are_unclear() -> None:
    assert samples_needed(0.95) == 6
    a, b = timed([1.0] * 5, group="g"), timed([2.0] * 5, group="g")
    assert compare_pair(a, b).verdict == "unclear"
    assert "fewer than 6 samples" in compare_pair(a, b).notes
    a, b = timed([1.0] * 6, group="g"), timed([2.0] * 6, group="g")
    assert compare_pair(a, b).verdict == "slower"


def test_wrong_and_failed_results() -> None:
    good = timed([1.0] * 9, [1.0] * 9)
    wrong = timed([0.5] * 9, [1.0] * 9, verified=False)
    failed = measurement(error="an illegal access")
    assert compare_pair(good, wrong).verdict == "broken"
    assert compare_pair(good, failed).verdict == "broken"
    assert "an illegal access" in compare_pair(good, failed).notes
    assert compare_pair(wrong, good).verdict == "unclear"
    assert compare_pair(failed, failed).verdict == "unclear"


def test_short_kernels_have_twice_the_margin_between_runs_only() -> None:
    a, b = timed([0.02] * 9, [1.0] * 9), timed([0.02] * 9, [1.0] * 9)
    assert compare_pair(a, b).margin == 0.02
    paired = timed([0.02] * 9, group="g")
    assert compare_pair(paired, paired).margin == 0.01
    assert compare_pair(a, b, margin=0.003).margin == 0.003


def test_times_without_a_library_are_compared_with_a_warning() -> None:
    found = compare_pair(timed([1.0] * 9), timed([1.5] * 9, device="Other"))
    assert (found.verdict, found.basis) == ("slower", "times")
    assert any("not cancelled" in note for note in found.notes)
    assert any("different cards" in note for note in found.notes)


def test_matching() -> None:
    old = Results(
        [timed([1.0] * 9, [1.0] * 9, config={"BM": 64}), measurement(problem=problem(99))]
    )
    new = Results(
        [
            timed([2.0] * 9, [1.0] * 9, config={"BM": 64}, source_sha256="changed"),
            timed([0.5] * 9, [1.0] * 9, config={"BM": 128}),
        ]
    )
    found = compare_results(old, new)
    assert [p.verdict for p in found.pairs] == ["slower"]
    assert (found.only_a, found.only_b) == (1, 1)
    assert found.regressions()
    (fastest,) = compare_results(old, new, by="problem").pairs
    assert fastest.verdict == "faster"
    other = Results([timed([0.5] * 9, [1.0] * 9, variant="shared")])
    assert compare_results(old, other).pairs[0].name == "naive -> shared"
    with pytest.raises(UsageError, match="in common"):
        compare_results(old, other, by="kernel")
    with pytest.raises(UsageError, match="in common"):
        compare_results(old, Results([timed([1.0] * 9, problem=problem(7))]))


def test_one_percent_from_run_to_run() -> None:
    """Medians of 30 rounds repeat within 1% on a card with half a percent of noise."""
    ratios = [
        statistics.median(
            x / y for x, y in zip(*Card(i, noise=0.005).samples(30, 1.0, 0.8), strict=True)
        )
        for i in range(40)
    ]
    assert max(ratios) / min(ratios) < 1.01
