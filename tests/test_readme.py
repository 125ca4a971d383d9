"""Figures in the README are those of a recorded run: the ladder is regenerated and compared."""

from __future__ import annotations

from pathlib import Path

from gemm_lab.lab.results import Results
from gemm_lab.report.ladder import ladder_document, ladders
from gemm_lab.report.markdown import render_markdown

ROOT = Path(__file__).parent.parent
RECORDED = ROOT / "benchmarks" / "results" / "ladder_h200.jsonl"
BEGIN, END = "<!-- ladder:begin -->", "<!-- ladder:end -->"


def regenerated() -> str:
    """`gemm-lab results FILE --ladder --md --square 4096 --dtype fp32 --dtype bf16`."""
    found = (
        Results.load(RECORDED)
        .latest()
        .filter(lambda m: m.problem.m == 4096 and m.problem.dtype in ("fp32", "bf16"))
    )
    return render_markdown(ladder_document(ladders(found)))


def test_the_ladder_is_the_recorded_one() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = text.split(BEGIN, 1)[1].split(END, 1)[0]
    tables = "\n".join(line for line in shown.splitlines() if line.startswith("|"))
    wanted = "\n".join(line for line in regenerated().splitlines() if line.startswith("|"))
    assert tables == wanted


def test_every_recorded_file_can_be_read_and_none_is_wrong() -> None:
    for path in sorted((ROOT / "benchmarks" / "results").glob("*.jsonl")):
        found = Results.load(path)
        assert found.damaged == (), path
        assert not found.wrong, path


def test_the_ablation_page_is_the_recorded_one() -> None:
    import sys

    sys.path.insert(0, str(ROOT / "benchmarks"))
    from ablation_table import document

    assert document() in (ROOT / "docs" / "ablation.md").read_text(encoding="utf-8")
