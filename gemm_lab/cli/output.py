"""stdout for results, stderr for everything else; plain unless stdout is a terminal."""

from __future__ import annotations

import os
import sys
from typing import Any, Literal

from gemm_lab.errors import GemmLabError
from gemm_lab.report.document import Document
from gemm_lab.report.plain import render_plain

__all__ = ["is_terminal", "print_diff", "print_document", "print_json", "print_text", "progress"]


def is_terminal(name: Literal["stdout", "stderr"] = "stdout") -> bool:
    """Whether a person looks at it; a stream that the caller closed is None."""
    stream = getattr(sys, name)
    return stream is not None and bool(stream.isatty()) and os.environ.get("TERM") != "dumb"


def print_document(document: Document) -> None:
    """With Rich on a terminal, as aligned text elsewhere."""
    if is_terminal():
        from gemm_lab.report import terminal

        terminal.print_document(document)
    else:
        print_text(render_plain(document))


def print_json(data: Any) -> None:
    """JSON and nothing else; NaN and Infinity become null."""
    from gemm_lab.core.measurement import to_json

    print_text(to_json(data, indent=2) + "\n")


def print_text(text: str) -> None:
    """Text as it stands; characters that the encoding lacks become '?'.

    GemmLabError when stdout cannot be written; nothing when the caller closed it.
    """
    if sys.stdout is None:
        return
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise GemmLabError(
            f"stdout cannot be written: {error.strerror}", hint="send it somewhere else"
        ) from None


def print_code(text: str, lexer: str) -> None:
    """Source with colours on a terminal, byte for byte elsewhere."""
    if not is_terminal() or "NO_COLOR" in os.environ:
        print_text(text)
        return
    from rich.console import Console
    from rich.syntax import Syntax

    Console().print(Syntax(text, lexer, background_color="default", word_wrap=True))


def print_diff(lines: list[str]) -> None:
    """A unified diff, red and green on a terminal."""
    if not is_terminal():
        print_text("".join(lines))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for line in lines:
        style = ""
        if line.startswith(("---", "+++")):
            style = "bold"
        elif line.startswith("@@"):
            style = "cyan"
        elif line[:1] in "+-":
            style = "green" if line[0] == "+" else "red"
        console.print(Text(line.rstrip("\n"), style=style), soft_wrap=True)


def progress(text: str) -> None:
    """A line that the next one replaces, on stderr; nothing where stderr is no terminal."""
    if is_terminal("stderr"):
        sys.stderr.write(f"\r\x1b[2K{text}{'...' if text else ''}")
        sys.stderr.flush()
