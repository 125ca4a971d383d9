"""The program: global options, and the lazy group of commands."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import typer
import typer.main

from gemm_lab.cli.failures import set_debug
from gemm_lab.cli.group import LazyGroup

__all__ = ["app", "program"]

app = typer.Typer(
    cls=LazyGroup,
    name="gemm-lab",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        typer.echo(f"gemm-lab {version('gemm-lab')}")
        raise typer.Exit


@app.callback()
def gemm_lab(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the trace of an error.")] = False,
) -> None:
    """A playground for JIT-compiled GPU matrix multiplication: one file per kernel idea.

    Start with `gemm-lab list`, then `gemm-lab run VARIANT`.
    """
    if debug:
        set_debug(True)


def _warn_on_stderr() -> None:
    """Warnings of the lab as one line each."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("warning: %(message)s"))
    logging.getLogger("gemm_lab").addHandler(handler)


def program() -> Callable[[], Any]:
    """What the entry point calls; it ends the process."""
    _warn_on_stderr()
    return partial(typer.main.get_command(app).main, prog_name="gemm-lab")
