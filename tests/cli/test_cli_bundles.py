"""Bundles of options: what Typer sees of them."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from gemm_lab.cli.bundles import spread

Size = Annotated[int, typer.Option("--size", help="How large.")]
Loud = Annotated[bool, typer.Option("--loud", help="Whether.")]


@dataclass(frozen=True, kw_only=True)
class Bundle:
    size: Size = 3
    loud: Loud = False


def test_fields_stand_where_the_bundle_stood() -> None:
    seen: list[Any] = []

    @spread
    def command(*, before: str = "b", bundle: Bundle, after: Loud = True) -> None:
        """What it does."""
        seen.append((before, bundle, after))

    parameters = inspect.signature(command).parameters
    assert list(parameters) == ["before", "size", "loud", "after"]
    assert parameters["size"].default == 3
    assert parameters["size"].annotation == Size
    assert command.__doc__ == "What it does."
    command(before="x", size=4, loud=True, after=False)
    assert seen == [("x", Bundle(size=4, loud=True), False)]


def test_options_are_parsed_into_it() -> None:
    from typer.testing import CliRunner

    app = typer.Typer()

    @app.command()
    @spread
    def command(*, bundle: Bundle) -> None:
        print(bundle)

    found = CliRunner().invoke(app, ["--size", "7"])
    assert found.stdout == f"{Bundle(size=7)}\n"
