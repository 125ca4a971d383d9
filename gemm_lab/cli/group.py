"""A Click group that imports a command when it is called, and not to list it."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
import typer.core
import typer.main

from gemm_lab.cli.commands import COMMANDS, CommandEntry
from gemm_lab.cli.failures import report_failure, set_debug

__all__ = ["LazyGroup", "load_command"]


def _remember_debug(value: bool) -> bool:
    if value:
        set_debug(True)
    return value


def _debug_carrier(
    debug: Annotated[
        bool,
        typer.Option(
            "--debug",
            help="Show the trace of an error.",
            callback=_remember_debug,
            is_eager=True,
            expose_value=False,
        ),
    ] = False,
) -> None:
    """Carries the option that every command has."""


def load_command(entry: CommandEntry) -> Any:
    """The command itself, with --debug added to it and to its subcommands."""
    target = getattr(importlib.import_module(entry.module), entry.attribute)
    command = _command_of(entry.name, target)
    _add_debug(command)
    return command


def _command_of(name: str, target: Any) -> Any:
    if isinstance(target, typer.Typer):
        made = typer.main.get_command(target)
    else:
        holder = _plain_typer()
        holder.command(name)(target)
        made = typer.main.get_command(holder)
    made.name = name
    return made


def _plain_typer() -> typer.Typer:
    return typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


def _add_debug(command: Any) -> None:
    for child in getattr(command, "commands", {}).values():
        _add_debug(child)
    if not getattr(command, "commands", {}):
        command.params.extend(_command_of("debug", _debug_carrier).params)


class LazyGroup(typer.core.TyperGroup):
    """The commands of the table; a stub with the help line stands for each until it is called."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._stubs: dict[str, Any] = {}

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The stub: enough for help and completion of names."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        if cmd_name not in self._stubs:
            self._stubs[cmd_name] = typer.core.TyperCommand(cmd_name, help=entry.help)
        return self._stubs[cmd_name]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command itself, for a call or for completion of its options."""
        name, found, rest = super().resolve_command(ctx, args)
        if found is None or name is None:
            return name, found, rest
        return name, load_command(COMMANDS[name]), rest

    def invoke(self, ctx: Any) -> Any:
        """The call; Typer would end these two without a word, or with a wrong code."""
        try:
            return super().invoke(ctx)
        except (BrokenPipeError, KeyboardInterrupt) as error:
            raise typer.Exit(report_failure(error)) from None

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run, and end the process with DESIGN's exit code; errors as one line and a hint."""
        set_debug(False)
        try:
            code = super().main(
                args,
                prog_name or "gemm-lab",
                complete_var,
                False,
                windows_expand_args,
                **extra,
            )
        except SystemExit:
            raise
        except BaseException as error:
            code = report_failure(error)
        if not standalone_mode:
            return code
        sys.exit(code if isinstance(code, int) else 0)
