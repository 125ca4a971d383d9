"""Numbers and tables as text."""

from __future__ import annotations

import io

import pytest

from gemm_lab.report.document import Paragraph, Table
from gemm_lab.report.numbers import (
    bytes_text,
    count_text,
    milliseconds,
    number,
    percent,
    significant,
)
from gemm_lab.report.plain import render_plain
from gemm_lab.report.terminal import print_document


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (12.3456, "12.35"),
        (1234.5, "1,234"),
        (0.012345, "0.01235"),
        (1e-9, "1.000e-09"),
        (3.2e12, "3.200e+12"),
        (-2.5, "-2.500"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
    ],
)
def test_significant(value: float, text: str) -> None:
    assert significant(value) == text


def test_small_ones() -> None:
    assert milliseconds(0.05) == "50.00 us"
    assert milliseconds(2) == "2.000 ms"
    assert percent(0.163) == "16.3%"
    assert percent(0.0005) == "0.05%"
    assert bytes_text(0) == "0 bytes"
    assert bytes_text(1536) == "1.5 KiB"
    assert bytes_text(2**41) == "2048 GiB"
    assert count_text(1, "kernel") == "1 kernel"
    assert count_text(2, "entry", "entries") == "2 entries"
    assert number("nan") == "nan"


def test_table_aligns() -> None:
    table = Table(columns=("name", "n"), rows=(("a", "1"), ("bb", "100")), right=frozenset({"n"}))
    assert render_plain((table, Paragraph(text="end\n"))) == (
        "name    n\na       1\nbb    100\n\nend\n"
    )


def test_table_refuses_ragged_rows() -> None:
    with pytest.raises(ValueError, match="2 cells under 1 columns"):
        Table(columns=("a",), rows=(("1", "2"),))


def test_terminal_table_breaks_no_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    table = Table(
        columns=("variant", "title", "tunables"),
        rows=(("warp_specialized", "Producer and consumer warps", "BLOCK_SIZE=128 TILE=8 BK=16"),),
    )
    page = io.StringIO()
    print_document((table,), page)
    assert "warp_specialized" in page.getvalue()
    assert "BLOCK_SIZE=128" in page.getvalue()
    assert max(map(len, page.getvalue().splitlines())) <= 60
