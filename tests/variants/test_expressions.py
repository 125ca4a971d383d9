"""The small language of the front matter."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemm_lab.variants.expressions import Expression, ExpressionError

small = st.integers(1, 10**6)


@given(a=small, b=small)
def test_arithmetic_is_python_s(a: int, b: int) -> None:
    scope = {"a": a, "b": b}
    assert Expression("a * b + a // b - a % b")(scope) == a * b + a // b - a % b
    assert Expression("ceil_div(a, b)")(scope) == -(-a // b)
    assert Expression("round_up(a, b) - a < b")(scope) is True
    assert Expression("a if a > b else b")(scope) == max(a, b)
    assert Expression("a % b == 0 and not a < b or b == 1")(scope) == (
        (a % b == 0 and not a < b) or b == 1
    )


@pytest.mark.parametrize(
    "text",
    [
        "2 ** 1000000000", "a.b", "a[0]", "a | upper", "a is defined", "range(3)", "a()", "'x' * 9",
        "{'a': 1}", "a ~ b", "a; b", "1 }} {{ 2", "[x for x in a]", "lambda: 1", "__import__('os')",
    ],
)  # fmt: skip
def test_what_is_not_in_the_language_is_refused(text: str) -> None:
    with pytest.raises(ExpressionError):
        Expression(text)({"a": 3, "b": 4})


def test_a_text_cannot_fill_the_memory() -> None:
    with pytest.raises(ExpressionError, match="needs numbers"):
        Expression("a * 1000000000000")({"a": "word"})


def test_names_are_known_before_evaluation() -> None:
    found = Expression("ceil_div(M, BM) * (2 if X == 'y' else Z)")
    assert found.names == {"M", "BM", "X", "Z"} | {"ceil_div"} - {"ceil_div"} | found.names
    assert found.unknown({"M", "BM", "X"}) == ["Z"]
