"""From an exception to one line, a hint and an exit code."""

from __future__ import annotations

import errno
import os
import sys
import traceback

import typer

from gemm_lab.errors import CompileError, GemmLabError

__all__ = ["INTERRUPTED", "report_failure", "set_debug"]

INTERRUPTED = 130
BROKEN_PIPE = 141
OUT_OF_MEMORY = 6
# What a write gives where there is no room: only help and version are written without print_text.
_UNWRITTEN = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}

# Typer brings its own Click from 0.20 on; the base of its errors is found through one of them.
_CLICK_ERROR = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")

_debug = False


def set_debug(value: bool) -> None:
    """Whether errors show their trace."""
    global _debug
    _debug = value


def report_failure(error: BaseException) -> int:
    """Tell an error on stderr; the exit code that the process should end with."""
    if isinstance(error, BrokenPipeError):
        _quieten()
        return BROKEN_PIPE
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        _say("interrupted")
        return INTERRUPTED
    if isinstance(error, _CLICK_ERROR):
        return _report_click(error)
    if _debug and sys.stderr is not None:
        traceback.print_exception(error, file=sys.stderr)
    if isinstance(error, GemmLabError):
        _report_own(error)
        return error.exit_code
    if isinstance(error, MemoryError):
        _say(f"error: not enough memory: {_line(str(error))}".rstrip(": "), "take a smaller shape")
        return OUT_OF_MEMORY
    if isinstance(error, RecursionError):
        _say("error: the input nests too deep", "simplify the expression or the file")
        return 2
    if isinstance(error, OSError) and error.errno in _UNWRITTEN and error.filename is None:
        _quieten()
        _say(f"error: stdout cannot be written: {error.strerror}", "send it somewhere else")
        return 1
    _say(
        f"error: internal: {type(error).__name__}: {_line(str(error))}",
        None if _debug else "the same command with --debug shows the trace",
    )
    return 1


def _report_click(error: BaseException) -> int:
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError" and context is not None:
        _say(context.get_help())
        return int(getattr(error, "exit_code", 2))
    where = getattr(context, "command_path", "gemm-lab")
    message = _line(getattr(error, "format_message", lambda: str(error))())
    _say(f"error: {message[:1].lower()}{message[1:]}".rstrip("."), f"see `{where} --help`")
    return int(getattr(error, "exit_code", 2))


def _report_own(error: GemmLabError) -> None:
    # A compile error brings the numbered source about its line below the first one.
    first, *excerpt = error.message.splitlines() or [""]
    _say("\n".join([f"error: {first.strip()}", *excerpt]))
    if isinstance(error, CompileError) and error.log and (_debug or not excerpt):
        _say(error.log.rstrip())
    if error.hint:
        _say(f"hint: {_line(error.hint)}")


def _line(text: str) -> str:
    return " ".join(text.split())


def _say(text: str, hint: str | None = None) -> None:
    if sys.stderr is None:  # closed by the caller; print would take stdout
        return
    try:
        print(text, file=sys.stderr)
        if hint:
            print(f"hint: {hint}", file=sys.stderr)
    except OSError:
        _quieten()


def _quieten() -> None:
    """Point stdout at nothing, so that the interpreter's last flush cannot fail again."""
    try:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, sys.stdout.fileno())
    except (OSError, ValueError, AttributeError):
        return
