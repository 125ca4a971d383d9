"""Cut PTX text into statements, with line numbers; comments go, `.loc` and labels stay."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from gemm_lab.emulator.faults import PtxError, Where

__all__ = ["Statement", "statements", "strip_comments"]

COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/', re.S)
# One statement's head: a brace, a label, a directive that ends with its line, or text up to ; { }
LABEL = re.compile(r"([A-Za-z_$%][\w$]*)\s*:(?!:)")
LINE_DIRECTIVE = re.compile(r"\.(loc|file|version|target|address_size)\b[^\n]*")
SPACE = re.compile(r"\s*")
SIMPLE = re.compile(r"[^;{}\"]*;")

Kind = Literal["open", "close", "label", "line", "text", "head"]


@dataclass(frozen=True, slots=True)
class Statement:
    """`head` is a function's header, before its opening brace; `text` ended with a semicolon."""

    kind: Kind
    text: str
    line: int
    at: int = 0


def strip_comments(text: str) -> str:
    """The text with comments blanked, every newline kept."""

    def blank(match: re.Match[str]) -> str:
        found = match[0]
        return found if found[0] == '"' else " " + "\n" * found.count("\n")

    return COMMENT.sub(blank, text)


def _end_of_text(text: str, start: int) -> tuple[int, str]:
    """Where a statement ends: at `;` outside braces and strings, or before a body's brace."""
    depth = 0
    at = start
    size = len(text)
    while at < size:
        char = text[at]
        if char == '"':
            close = text.find('"', at + 1)
            if close < 0:
                break
            at = close
        elif char == "{":
            # A body's brace follows a header; a vector's or an initialiser's does not.
            if depth == 0 and text[start] == "." and "=" not in text[start:at]:
                return at, "head"
            depth += 1
        elif char == "}":
            depth -= 1
            if depth < 0:
                return at, "broken"
        elif char == ";" and depth == 0:
            return at, "text"
        at += 1
    return size, "broken"


def statements(text: str) -> Iterator[Statement]:
    """Statements of comment-free PTX in order. PtxError where the text breaks off."""
    newlines = [match.start() for match in re.finditer("\n", text)]
    at = 0
    size = len(text)
    while True:
        at = SPACE.match(text, at).end()  # type: ignore[union-attr]
        if at >= size:
            return
        line = bisect_right(newlines, at) + 1
        char = text[at]
        if char in "{}":
            yield Statement("open" if char == "{" else "close", char, line, at)
            at += 1
            continue
        if char == ";":
            at += 1
            continue
        if char == ".":
            directive = LINE_DIRECTIVE.match(text, at)
            if directive:
                yield Statement("line", directive[0].strip(), line)
                at = directive.end()
                continue
            if text.startswith((".section", ".pragma"), at) or text.startswith("@@", at):
                at = _skip(text, at, line)
                continue
        elif char != "@":
            label = LABEL.match(text, at)
            if label:
                yield Statement("label", label[1], line)
                at = label.end()
                continue
        simple = SIMPLE.match(text, at)
        if simple:
            yield Statement("text", text[at : simple.end() - 1].strip(), line)
            at = simple.end()
            continue
        end, kind = _end_of_text(text, at)
        if kind == "broken":
            raise PtxError(
                "PTX syntax",
                "the text breaks off inside a statement",
                where=Where(ptx_line=line, instruction=text[at : at + 60].split("\n")[0]),
            )
        yield Statement("head" if kind == "head" else "text", text[at:end].strip(), line)
        at = end + (kind == "text")


def _skip(text: str, at: int, line: int) -> int:
    """Past a .pragma (to its semicolon) or a debug .section (to its closing brace)."""
    closer = "}" if text.startswith(".section", at) else ";"
    end = text.find(closer, at)
    if end < 0:
        raise PtxError("PTX syntax", "the text breaks off", where=Where(ptx_line=line))
    return end + 1
