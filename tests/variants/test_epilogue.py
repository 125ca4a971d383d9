"""The epilogue language: what it refuses, and that its NumPy side is right."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemm_lab.errors import UsageError
from gemm_lab.variants import parse_epilogue

finite = st.floats(-50, 50)


@given(x=finite)
def test_named_functions(x: float) -> None:
    values = {"x": np.array([x])}

    def value(text: str) -> float:
        return float(parse_epilogue(text)(values)[0])

    assert value("relu") == max(x, 0.0)
    assert value("relu(x - 1)") == max(x - 1, 0.0)
    assert value("gelu") == pytest.approx(0.5 * x * (1 + math.erf(x / math.sqrt(2))), abs=1e-12)
    assert value("silu") == pytest.approx(x / (1 + math.exp(-x)), rel=1e-12)
    assert value("where(x > 0, x, 0.1 * x)") == (x if x > 0 else 0.1 * x)
    assert value("min(max(x, -1), 1)") == min(max(x, -1.0), 1.0)
    assert value("-x + abs(x) * 2 / 4") == -x + abs(x) * 2 / 4
    assert value("erf(x)") == pytest.approx(math.erf(x), abs=1e-14)


def test_rows_and_columns() -> None:
    rows, cols = np.arange(3.0)[:, None], np.arange(4.0)[None, :]
    values = {"x": np.ones((3, 4)), "row": rows, "col": cols}
    assert (parse_epilogue("where(col <= row, x, 0)")(values) == np.tril(np.ones((3, 4)))).all()


@pytest.mark.parametrize(
    "text",
    [
        "", "x +", "x ** 2", "y", "x.real", "x[0]", "foo(x)", "max(x)", "where(x, 1)", "1j * x",
        "True", "x if x else 0", "x and x", "lambda: x", "[x]", "x; x", "__import__('os')",
        "1e999", "'a'", "x == x == x", "relu(x=1)", "x" + " + x" * 600, "(" * 80 + "x" + ")" * 80,
        "-" * 60 + "x", "x // 2", "x % 2", "x @ x", "not x", "f'{x}'",
    ],
)  # fmt: skip
def test_what_is_not_in_the_language(text: str) -> None:
    if text == "(" * 80 + "x" + ")" * 80:
        assert parse_epilogue(text).names == {"x"}  # parentheses alone nest nothing
        return
    with pytest.raises(UsageError, match="epilogue"):
        parse_epilogue(text)


def test_cuda_text_has_no_names_of_the_user() -> None:
    text = parse_epilogue("where(row > 3, relu(x) + bias, c / 2)").cuda("float")
    assert text == "(((double(row) > 3.0f)) ? ((epilogue_relu(x) + bias)) : ((c / 2.0f)))"
