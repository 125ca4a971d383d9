"""How automatic choice stands against the library, from files of measurements alone."""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import pytest
from choice_helpers import H200, choose, question
from measurements import timed

import gemm_lab.lab.choice_rule as rule
from gemm_lab.core.measurement import MeasuredProblem, Measurement
from gemm_lab.core.problem import Shape
from gemm_lab.lab.results import Results
from gemm_lab.lab.standing import standings
from gemm_lab.lab.suite import load_suite
from gemm_lab.report.markdown import render_markdown
from gemm_lab.report.standing import standing_document


def problem(shape: Shape) -> MeasuredProblem:
    return MeasuredProblem(
        m=shape.m, n=shape.n, k=shape.k, batch=shape.batch, dtype="bf16", out_dtype="bf16",
        layout="nt", alpha=1.0, beta=0.0, epilogue=None,
    )  # fmt: skip


def took(variant: str, ms: float, library_ms: float, shape: Shape, **other: Any) -> Measurement:
    facts = {"device": "NVIDIA H200", "arch": "sm_90a", "config": {}, **other}
    return timed([ms] * 5, [library_ms] * 5, variant=variant, problem=problem(shape), **facts)


def suite_runs(name: str, ratios: dict[int, float]) -> list[Measurement]:
    """The first two of each choice: the first as fast as ratios say, the second as the library."""
    found = []
    for i, s in enumerate(load_suite(name).shapes):
        x = s.shape
        for rank, a in enumerate(choose(question((x.m, x.n, x.k))).alternatives[:2]):
            ratio = 1.0 if rank else ratios.get(i, 0.9)
            found.append(
                took(
                    a.variant, 1.0 / ratio, 1.0, x, config=dict(a.config), arch=a.arch,
                    choice_rank=rank,
                )
            )  # fmt: skip
    return found


def test_means_and_the_worst_of_a_suite() -> None:
    runs = suite_runs("squares", {0: 0.25, 3: 0.5})
    (group,) = standings(runs, [load_suite("squares")])
    assert (group.suite, group.dtype, group.layout) == ("squares", "bf16", "nt")
    assert group.mean == pytest.approx(geometric_mean([0.25, 0.5, *[0.9] * 9]))
    assert group.best_mean == pytest.approx(1.0)
    worst = group.standings[:2]
    assert [s.taken.problem.m for s in worst] == [128, 768]
    assert worst[0].bound.startswith("launches")
    assert all(s.bound for s in group.standings)
    text = render_markdown(standing_document([group]))
    assert "| squares | bf16 nt | NVIDIA H200 | 11 | " in text
    assert text.count("\n| 128x128x128 | bf16 nt | 0.250 | 4.000 ms | ") == 1


@pytest.mark.parametrize(
    ("shape", "variant", "bound"),
    [
        ((8192, 1, 8192), None, "dram"),
        ((8192, 8192, 8192), None, "l2"),
        ((128, 128, 128), None, "launches"),
        ((128, 128, 16384), "tiled", "wave tail"),
    ],
)
def test_what_bounds_it(shape: tuple[int, int, int], variant: str | None, bound: str) -> None:
    """Of what is chosen, or of a kernel with a single block: the other multiprocessors idle."""
    first = choose(question(shape)).chosen
    m, n, k = shape
    config = {} if variant else dict(first.config)
    run = took(
        variant or first.variant, 1.0, 1.0, Shape(m=m, n=n, k=k), config=config, arch=first.arch
    )
    ((standing,),) = [g.standings for g in standings([run])]
    assert bound in standing.bound


def test_copies_are_added_to_the_time() -> None:
    shape = Shape(m=4095, n=4097, k=4093)
    aligned = [
        a for a in choose(question((4095, 4097, 4093))).alternatives if a.copies == ("a", "b")
    ]
    run = took(
        aligned[0].variant, 0.2, 0.2, shape, config=dict(aligned[0].config), arch=aligned[0].arch
    )
    ((standing,),) = [g.standings for g in standings([run])]
    copies = rule.copies_ms(question((4095, 4097, 4093)).problem("nt"), "ab", H200)
    assert standing.copies_ms == pytest.approx(copies)
    assert standing.ratio == pytest.approx(0.2 / (0.2 + copies))
    assert "+ copies" in render_markdown(standing_document(standings([run])))


def test_wrong_failed_and_untimed_kernels_do_not_stand() -> None:
    x = Shape(m=64, n=64, k=64)
    wrong = took("naive", 1.0, 1.0, x, choice_rank=0, verified=False)
    failed = took("shared", 1.0, 1.0, x, choice_rank=1, error="it hung")
    right = took("tiled", 2.0, 1.0, x, choice_rank=2)
    ((standing,),) = [g.standings for g in standings([wrong, failed, right])]
    assert standing.taken.variant == "tiled"
    assert standings([wrong]) == []
    other = took("tiled", 2.0, 1.0, Shape(m=128, n=64, k=64))
    (group,) = standings([wrong, other])
    assert (len(group.standings), group.without) == (1, 1)
    assert "nothing was timed" in render_markdown(standing_document([]))


def test_the_last_choice_counts_and_without_one_the_best() -> None:
    x = Shape(m=64, n=64, k=64)
    before = took("naive", 4.0, 1.0, x, choice_rank=0, started="2026-01-01T00:00:00+00:00")
    after = took("tiled", 2.0, 1.0, x, choice_rank=0, started="2026-01-02T00:00:00+00:00")
    for order in ([before, after], [after, before]):
        ((standing,),) = [g.standings for g in standings(order)]
        assert standing.taken is after
    ((standing,),) = [
        g.standings for g in standings([took("naive", 4.0, 1.0, x), took("mma", 2.0, 1.0, x)])
    ]
    assert standing.taken.variant == "mma"


def test_the_program_that_measures_choice_writes_down_its_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the emulator, where it is right but nothing is timed; twice, to go on from the file."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import choice

    output = tmp_path / "runs.jsonl"
    words = ["choice.py", "--shape", "16x24x32", "--dtype", "fp32", "--layout", "nn",
             "--backend", "emulator", "-o", str(output)]  # fmt: skip
    for _ in range(2):
        monkeypatch.setattr(sys, "argv", words)
        assert choice.main() == 0
        assert "nothing was timed" in capsys.readouterr().out
    (kept,) = Results.load(output)
    assert (kept.choice_rank, kept.verified) == (0, True)
