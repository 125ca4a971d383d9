"""gemm-lab results"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gemm_lab.cli import measuring_options as mo
from gemm_lab.cli import options as o
from gemm_lab.cli.bundles import spread
from gemm_lab.errors import UsageError

if TYPE_CHECKING:
    from gemm_lab.lab.results import Results
    from gemm_lab.lab.suite import Suite
    from gemm_lab.report.document import Document

__all__ = ["results"]


@spread
def results(
    *,
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="What `bench -o FILE` wrote.")
    ],
    ladder: Annotated[
        bool, typer.Option("--ladder", help="The steps from rung to rung, a table a problem.")
    ] = False,
    standing: Annotated[
        bool,
        typer.Option(
            "--standing",
            help="How automatic choice stands against the library, and the worst problems.",
        ),
    ] = False,
    suite: Annotated[
        list[str] | None,
        typer.Option(
            "--suite", metavar="NAME", help="With --standing: a part for each; may be repeated."
        ),
    ] = None,
    square: o.Squares = None,
    dtype: Annotated[
        list[str] | None,
        typer.Option("--dtype", metavar="DTYPE", help="Only this arithmetic; may be repeated."),
    ] = None,
    choices: Annotated[
        Path | None,
        typer.Option(
            "--choices",
            metavar="OUT",
            help="Write the fastest kernels of every problem to this file, for automatic choice; "
            "into a folder, a file a card.",
        ),
    ] = None,
    form: mo.Form,
) -> None:
    """Show files of measurements; nothing is run.

    The table in the README:
    gemm-lab results benchmarks/results/ladder_h200.jsonl --ladder --md --square 4096 --dtype fp32
    --dtype bf16
    """
    from gemm_lab.lab.results import Results
    from gemm_lab.lab.suite import load_suite

    if suite and not standing:
        raise UsageError("--suite goes with --standing", hint="--square picks squares")
    if ladder and standing:
        raise UsageError("--ladder and --standing are two tables", hint="one at a time")
    suites = [load_suite(name) for name in suite or ()]
    shown = form.chosen()
    loaded = Results()
    for file in files:
        content = Results.load(file)
        for bad in content.damaged:
            typer.echo(f"{file}:{bad.line} {bad.reason} and is passed over", err=True)
        loaded += content
    found = loaded.latest()
    if choices is not None:
        from gemm_lab.lab.choice_records import write_choices

        for path, count in write_choices(choices, found).items():
            typer.echo(f"{count} records in {path}", err=True)
        return
    if square:
        found = found.filter(lambda x: x.problem.m == x.problem.n == x.problem.k in square)
    if dtype:
        found = found.filter(lambda x: x.problem.dtype in dtype)
    mo.print_results(found, shown, _document(found, ladder, standing, suites))


def _document(found: Results, ladder: bool, standing: bool, suites: list[Suite]) -> Document:
    if standing:
        from gemm_lab.lab.standing import standings
        from gemm_lab.report.standing import standing_document

        return standing_document(standings(found, suites))
    if ladder:
        from gemm_lab.report.ladder import ladder_document, ladders

        return ladder_document(ladders(found))
    from gemm_lab.report.survey import survey_document

    return survey_document(list(found))
