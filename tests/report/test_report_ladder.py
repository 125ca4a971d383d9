"""Ladders, surveys and Markdown from Measurements made by hand."""

from __future__ import annotations

from gemm_lab.core.measurement import Baseline, MeasuredProblem, Measurement
from gemm_lab.core.statistics import paired_ratio
from gemm_lab.report.document import Fact, Facts, Paragraph, Table
from gemm_lab.report.ladder import ladder_document, ladders
from gemm_lab.report.markdown import render_markdown
from gemm_lab.report.survey import pruned_facts, survey_document


def made(variant: str, *ms: float, size: int = 1000, **other: object) -> Measurement:
    """A measurement in the group "g", beside a library of 1 ms."""
    problem = MeasuredProblem(
        m=size, n=size, k=size, batch=1, dtype="fp32", out_dtype="fp32", layout="nn",
        alpha=1.0, beta=0.0, epilogue=None,
    )  # fmt: skip
    middle = sorted(ms)[len(ms) // 2] if ms else None
    library = tuple(1.0 for _ in ms)
    facts: dict[str, object] = {
        "command": "c", "variant": variant, "source_sha256": "0", "config": {"BM": 1},
        "problem": problem, "backend": "gpu", "device": "Card", "arch": "sm_80",
        "verified": True, "samples_ms": ms, "median_ms": middle,
        "tflops": None if middle is None else 2 * size**3 / middle / 1e9, "group": "g",
        "baseline": Baseline(name="BLAS 1", compute_type="F32", samples_ms=library, median_ms=1.0,
                             tflops=2.0) if ms else None,
        "ratio_to_baseline": paired_ratio(library, ms) if ms else None,
    }  # fmt: skip
    return Measurement(**{**facts, **other})  # type: ignore[arg-type]


def table_of(*measurements: Measurement) -> Table:
    block = ladder_document(ladders(measurements))[0]
    assert isinstance(block, Table)
    return block


def test_steps_are_medians_of_pairs() -> None:
    # Medians alone would say 3.00; round by round it is 2 throughout.
    table = table_of(made("a", 2.0, 6.0, 4.0), made("b", 1.0, 3.0, 2.0))
    assert [row[0] for row in table.rows] == ["a", "b"]
    assert table.rows[1][4] == "2.00"
    assert table.rows[1][5] == "50.0%"
    assert table.rows[0][4] == ""
    assert table.title == "1000 x 1000 x 1000, fp32, layout nn, Card"


def test_the_best_configuration_stands_for_a_rung() -> None:
    table = table_of(made("a", 4.0), made("a", 2.0), made("b", 1.0), made("b", 0.1, verified=False))
    assert [row[2] for row in table.rows] == ["2.000 ms", "1.000 ms"]


def test_a_wrong_or_failed_rung_is_shown_and_passed_over() -> None:
    table = table_of(
        made("a", 4.0), made("b", 1.0, verified=False), made("c", error="died"), made("d", 2.0)
    )
    assert [row[1] for row in table.rows] == ["right", "WRONG", "failed", "right"]
    assert table.styles == ("", "bad", "bad", "")
    assert [row[4] for row in table.rows] == ["", "", "", "2.00"]


def test_rungs_of_other_rounds_have_no_interval() -> None:
    table = table_of(made("a", 4.0, 5.0, 3.0), made("b", 1.0, 2.0, 1.5, group="other"))
    assert table.rows[1][4] == "2.67"


def test_problems_are_apart_and_the_library_is_named() -> None:
    found = ladders([made("a", 1.0), made("a", 1.0, size=10), made("b", 1.0)])
    assert [len(x.rungs) for x in found] == [2, 1]
    document = ladder_document(found)
    assert [type(block) for block in document] == [Table, Paragraph, Table, Paragraph]
    assert "BLAS 1, 2.000 TFLOP/s, 1.000 ms, compute type F32" in render_markdown(document)


def test_the_library_is_the_one_beside_the_highest_rung() -> None:
    earlier = Baseline(
        name="BLAS 0", compute_type="F32", samples_ms=(2.0,), median_ms=2.0, tflops=1.0
    )
    low = made("a", 4.0, group="other", baseline=earlier)
    text = render_markdown(ladder_document(ladders([low, made("b", 1.0)])))
    assert "BLAS 1" in text
    assert "BLAS 0" not in text


def test_survey_hides_what_is_the_same_everywhere() -> None:
    table = survey_document([made("a", 1.0), made("b", 2.0)])[0]
    assert isinstance(table, Table)
    assert table.columns == ("kernel", "result", "time", "TFLOP/s", "of the library")
    varied = survey_document([made("a", 1.0), made("a", 2.0, config={"BM": 2}, size=7)])[0]
    assert isinstance(varied, Table)
    assert varied.columns[:4] == ("kernel", "tunables", "shape", "type")
    assert varied.rows[1][1] == "BM=2"
    assert survey_document([]) == ()


def test_the_emulator_counts_where_it_cannot_time() -> None:
    counters = {"sectors_per_load_request": 4.0, "flop_per_global_byte": 8.5, "fma": 1}
    found = [made("a", backend="emulator", device="emulated sm_80", counters=counters)]
    wanted = ("kernel", "result", "sectors/load", "FLOP/global byte")
    for table, *_ in (survey_document(found), ladder_document(ladders(found))):
        assert isinstance(table, Table)
        assert table.columns == wanted
        assert table.rows == (("a", "right", "4.000", "8.500"),)


def test_failures_are_told() -> None:
    block = survey_document([made("a", error="an illegal access")])[1]
    assert isinstance(block, Facts)
    assert block.facts[0].text == "BM=1 on 1000x1000x1000: an illegal access"


def test_reasons_of_pruning_are_counted() -> None:
    (block,) = pruned_facts({f"rule {i}": i for i in range(1, 11)}, 55)
    assert isinstance(block, Facts)
    assert block.title == "55 candidates pruned before compiling"
    assert block.facts[0] == Fact(name="10", text="rule 10")
    assert block.facts[-1] == Fact(name="3", text="for other reasons")
    assert pruned_facts({}, 0) == ()


def test_markdown() -> None:
    document = (
        Table(columns=("a|b", "n"), rows=(("x\ny", "1"),), right=frozenset({"n"}), title="T"),
        Facts(title="F", facts=(Fact(name="k", text="v"),)),
        Paragraph(text="end"),
    )
    assert render_markdown(document) == (
        "**T**\n\n| a\\|b | n |\n|---|---:|\n| x y | 1 |\n\n**F**\n\n- k: v\n\nend\n"
    )
