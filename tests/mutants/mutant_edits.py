"""Kernels broken on purpose, one place at a time: barriers, guards, stage indices.

It edits rendered CUDA as text, so it knows the house's style (spaces round comparisons, none in
template arguments) and no variant.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

# Calls that order memory. Those of the tensor-core rungs are named as in templates/lib.
_BARRIER = re.compile(
    r"(?:__syncthreads|__syncwarp|\w*(?:_wait|_commit|arrive|fence)\w*(?:<[^<>;]*>)?)\([^;]*\);"
)
_COMPARISON = re.compile(r" (<|<=|>|>=) ")
_CALL_GUARD = re.compile(r"(?<=\()!\w+\(\w*\)(?=\))|\bmine\(i\)(?= &&)")
_NOT_ZERO = re.compile(r"\w+ != \w+\(0\)")
_STAGE_INDEX = re.compile(r"(?<=\[)(stage\w*|slot\w*|buffer\w*)(?=\])")
_STAGE_STEP = re.compile(r"(\w*stage\w*) = \1 \+ 1 == STAGES \? 0 : \1 \+ 1")
_STAGE_OFFSET = re.compile(r"\bstage \* BK\b")
_AHEAD = re.compile(r"\(STAGES - 1\) \* BK|= STAGES - 1;")
_CONSTANT = re.compile(r"[A-Z][A-Z0-9_]*|\d+|[-+*/%() <>=]")


@dataclass(frozen=True)
class Mutant:
    """One edit: `line` from 1, the line before and after, what was done."""

    kind: str
    line: int
    before: str
    after: str
    source: str

    @property
    def key(self) -> tuple[str, str]:
        """What the list of equivalent mutants names: the line's code before and after."""
        return (_code(self.before), _code(self.after))


def mutants(source: str) -> Iterator[Mutant]:
    """Every mutant of a rendered kernel, in the order of its lines."""
    lines = source.split("\n")
    for number, line in enumerate(lines, 1):
        code = line.partition("//")[0]
        if not _is_code(code):
            continue
        for kind, after in _edits(code):
            if after == code:
                continue
            changed = [*lines]
            changed[number - 1] = after
            yield Mutant(kind, number, line, after, "\n".join(changed))


def _code(line: str) -> str:
    return " ".join(line.partition("//")[0].split())


def _is_code(code: str) -> bool:
    text = code.strip()
    return bool(text) and not text.startswith(
        ("#", "template", "static_assert", "asm", '"', "using")
    )


def _edits(code: str) -> Iterator[tuple[str, str]]:
    if not re.search(r"__device__|__global__", code):
        for found in _BARRIER.finditer(code):
            yield "barrier removed", _replaced(code, found.start(), found.end(), ";")
    if not code.lstrip().startswith("for "):
        yield from _guards(code)
    for found in _STAGE_INDEX.finditer(code):
        shifted = f"({found[1]} + 1) % STAGES"
        yield "stage shifted", _replaced(code, found.start(), found.end(), shifted)
    for found in _STAGE_STEP.finditer(code):
        yield "stage not advanced", _replaced(code, found.start(), found.end(), f"{found[1]} += 0")
    for found in _STAGE_OFFSET.finditer(code):
        yield "stage shifted", _replaced(code, found.start(), found.end(), "(stage + 1) * BK")
    for found in _AHEAD.finditer(code):
        other = found[0].replace("STAGES - 1", "STAGES" if "BK" in found[0] else "0")
        yield "stage shifted", _replaced(code, found.start(), found.end(), other)


def _guards(code: str) -> Iterator[tuple[str, str]]:
    for found in _COMPARISON.finditer(code):
        start, stop = _conjunct(code, found.start())
        if all(_CONSTANT.fullmatch(word) for word in re.findall(r"\w+|\S", code[start:stop])):
            continue  # decided when it is compiled
        sign = found[1]
        weaker = {"<": "<=", ">=": ">", ">": ">=", "<=": "<"}[sign]
        yield "guard weakened", _replaced(code, found.start(1), found.end(1), weaker)
        passes = "true" if sign in ("<", "<=") else "false"
        yield "guard removed", _replaced(code, start, stop, passes)
    for found in _CALL_GUARD.finditer(code):
        passes = "false" if found[0].startswith("!") else "true"
        yield "guard removed", _replaced(code, found.start(), found.end(), passes)
    for found in _NOT_ZERO.finditer(code):
        yield "guard removed", _replaced(code, found.start(), found.end(), "true")


def _conjunct(code: str, at: int) -> tuple[int, int]:
    """The comparison around a place: up to &&, ||, ?, an assignment, a return or a bracket."""
    depth, start = 0, 0
    for i in range(at, -1, -1):
        if code[i] in ")]":
            depth += 1
        elif code[i] in "([":
            if depth == 0:
                start = i + 1
                break
            depth -= 1
        elif depth == 0 and (
            code[i : i + 2] in ("&&", "||")
            or code[i] in "?:;{,"
            or re.match(r"(?<![<>=!])= |return ", code[i:]) is not None
        ):
            start = i + (2 if code[i] in "&|" else 7 if code[i] == "r" else 1)
            break
    depth, stop = 0, len(code)
    for i in range(at, len(code)):
        if code[i] in "([":
            depth += 1
        elif code[i] in ")]":
            if depth == 0:
                stop = i
                break
            depth -= 1
        elif depth == 0 and (code[i : i + 2] in ("&&", "||") or code[i] in "?;,"):
            stop = i
            break
    text = code[start:stop]
    return start + len(text) - len(text.lstrip()), stop - (len(text) - len(text.rstrip()))


def _replaced(code: str, start: int, stop: int, text: str) -> str:
    return code[:start] + text + code[stop:]
