"""What a user types, read."""

from __future__ import annotations

import pytest

from gemm_lab.cli.cache import parse_age, parse_size
from gemm_lab.cli.options import one_variant, optional_variant, several_variants
from gemm_lab.cli.values import (
    expand_values,
    finite,
    parse_assignments,
    parse_grid,
    parse_shape,
    shapes_of,
    single_shape,
)
from gemm_lab.core.problem import Shape
from gemm_lab.errors import UsageError


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("64", ("64",)),
        ("64,128", ("64", "128")),
        ("8:32:8", ("8", "16", "24", "32")),
        ("8:30:8", ("8", "16", "24")),
        ("1:3", ("1", "2", "3")),
        ("32:8:-8", ("32", "24", "16", "8")),
        ("4,8:16:4,8", ("4", "8", "12", "16")),
        ("rows,grouped", ("rows", "grouped")),
        ("5:5:1", ("5",)),
    ],
)
def test_expand_values(text: str, values: tuple[str, ...]) -> None:
    assert expand_values(text) == values


@pytest.mark.parametrize(
    "text", ["8:32:0", "32:8:8", "a:b", "1:2:3:4", "64,", ",", "", "0:999999999:1", "1:", ":"]
)
def test_bad_values(text: str) -> None:
    with pytest.raises(UsageError):
        expand_values(text)


def test_grid_adds_up() -> None:
    assert parse_grid(["BM=64", "BK=8:16:8", "BM=128,64"]) == {
        "BM": ("64", "128"),
        "BK": ("8", "16"),
    }


def test_assignments() -> None:
    assert parse_assignments(["BM=64", " RASTER = rows "]) == {"BM": "64", "RASTER": "rows"}


@pytest.mark.parametrize(
    "texts", [["BM"], ["=4"], ["BM="], ["1=2"], ["BM=1", "BM=2"], ["BM=1,2"], ["BM=1:2"], [""]]
)
def test_bad_assignments(texts: list[str]) -> None:
    with pytest.raises(UsageError):
        parse_assignments(texts)


def test_shapes() -> None:
    assert parse_shape("3x5X7") == Shape(m=3, n=5, k=7)
    assert shapes_of(square=(8,), k=3) == (Shape(m=8, n=8, k=3),)
    assert shapes_of(m=1, n=2, k=3, batch=4) == (Shape(m=1, n=2, k=3, batch=4),)
    assert shapes_of(shape=("1x2x3", "1x2x3"), square=(4,)) == (
        Shape(m=1, n=2, k=3),
        Shape(m=4, n=4, k=4),
    )
    assert shapes_of() == ()
    assert single_shape(()) is None


@pytest.mark.parametrize(
    "text", ["", "1x2", "1x2x3x4", "-1x2x3", "axbxc", "1.5x2x3", "1x2x" + "9" * 20]
)
def test_bad_shapes(text: str) -> None:
    with pytest.raises(UsageError, match="no shape"):
        parse_shape(text)


def test_shapes_that_do_not_go_together() -> None:
    for keywords in ({"m": 1}, {"batch": 2}, {"square": (-1,)}, {"m": -1, "n": 1, "k": 1}):
        with pytest.raises(UsageError):
            shapes_of(**keywords)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="2 shapes"):
        single_shape(shapes_of(square=(1, 2)))


def test_variants_either_way() -> None:
    assert one_variant("a", None) == one_variant(None, "a") == one_variant("a", "a") == "a"
    assert optional_variant(None, None) is None
    assert several_variants(["a", "b"], ["b", "c"]) == ("a", "b", "c")
    with pytest.raises(UsageError, match="two variants"):
        one_variant("a", "b")
    with pytest.raises(UsageError, match="which variant"):
        one_variant(None, None)


def test_finite() -> None:
    assert finite("alpha", 2.0) == 2.0
    with pytest.raises(UsageError):
        finite("alpha", float("nan"))


def test_sizes_and_ages() -> None:
    assert parse_size("500M") == 500 * 2**20
    assert parse_size("2GiB") == 2 * 2**30
    assert parse_size("10") == 10
    assert parse_age("30d") == 30 * 86400
    for text in ("", "x", "-1", "1.5G", "9" * 30):
        with pytest.raises(UsageError):
            parse_size(text)
        with pytest.raises(UsageError):
            parse_age(text)
