"""CUDA C++ read as far as its outline: comments, directives, and what each declaration names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

__all__ = ["Chunk", "chunks", "tokens", "without_comments", "without_directives"]

_WORD = re.compile(r"[A-Za-z_]\w*")
_DEFINE = re.compile(r"\s*#\s*define\s+(\w+)")
_QUALIFIERS = {"__global__", "__device__", "__constant__", "__shared__", "__managed__"}
_TYPES = re.compile(r"\b(struct|class|union|enum)\b")
_KEYWORDS = {
    "struct", "class", "union", "enum", "typedef", "using", "template", "typename", "const",
    "constexpr", "static", "public", "private", "void", "bool", "char", "short", "int", "long",
    "float", "double", "unsigned", "signed", "auto",
}  # fmt: skip
_ALWAYS_KEPT = re.compile(r"^\s*(using\s+namespace\s+(?!std\b)|static_assert\b)")
_CONSTANT = re.compile(r"\b(const|constexpr)\b")


@dataclass(kw_only=True)
class Chunk:
    """One declaration at namespace level: text[start:stop]."""

    start: int
    stop: int
    declares: set[str] = field(default_factory=set)
    words: set[str] = field(default_factory=set)
    kernel: str | None = None
    scope: str = ""
    template: bool = False
    launches: bool = False
    usable: bool = True  # on the device at all
    always: bool = False
    kept: bool = False


def tokens(text: str) -> Iterator[tuple[str, int, int]]:
    """Comments and literals: kind, start, stop."""
    i, size = 0, len(text)
    while i < size:
        two = text[i : i + 2]
        if two == "//":
            stop = text.find("\n", i)
            stop = size if stop < 0 else stop
            while text[stop - 1 : stop] == "\\" and stop < size:
                stop = text.find("\n", stop + 1)
                stop = size if stop < 0 else stop
            yield "comment", i, stop
            i = stop
        elif two == "/*":
            stop = text.find("*/", i + 2)
            stop = size if stop < 0 else stop + 2
            yield "comment", i, stop
            i = stop
        elif text[i] == '"' and i and text[i - 1] == "R":
            opened = text.find("(", i)
            close = ")" + text[i + 1 : opened] + '"'
            stop = text.find(close, opened)
            stop = size if stop < 0 else stop + len(close)
            yield "literal", i, stop
            i = stop
        elif text[i] == '"' or (text[i] == "'" and not text[i - 1 : i].isalnum()):
            stop = i + 1
            while stop < size and text[stop] not in (text[i], "\n"):
                stop += 2 if text[stop] == "\\" else 1
            yield "literal", i, min(stop + 1, size)
            i = stop + 1
        else:
            i += 1


def without_comments(text: str) -> str:
    """The text with comments, and the insides of literals, as blanks."""
    out = list(text)
    for kind, start, stop in tokens(text):
        inner = (start, stop) if kind == "comment" else (start + 1, stop - 1)
        for i in range(*inner):
            if out[i] != "\n":
                out[i] = " "
    return "".join(out)


def without_directives(code: str) -> tuple[str, frozenset[int], dict[str, set[str]]]:
    """The code with directives as blanks, where they stood, and the words behind each macro.

    A #pragma belongs to the code that it stands in.
    """
    lines = code.split("\n")
    _drop_dead_branches(lines)
    macros: dict[str, set[str]] = {}
    stood: set[int] = set()
    i = place = 0
    while i < len(lines):
        if not lines[i].lstrip().startswith("#"):
            place += len(lines[i]) + 1
            i += 1
            continue
        first = i
        while lines[i].rstrip().endswith("\\") and i + 1 < len(lines):
            i += 1
        whole = " ".join(lines[first : i + 1])
        named = _DEFINE.match(whole)
        if named:
            macros.setdefault(named[1], set()).update(_WORD.findall(whole[named.end() :]))
        for at in range(first, i + 1):
            if not re.match(r"\s*#\s*pragma\b", whole):
                stood.update(range(place, place + len(lines[at])))
            place += len(lines[at]) + 1
            lines[at] = " " * len(lines[at])
        i += 1
    return "\n".join(lines), frozenset(stood), macros


def _drop_dead_branches(lines: list[str]) -> None:
    """Blank what stands in `#if 0`, and an #else whose braces only repeat those before it."""
    # Of each open #if: is this branch blanked, and the braces of the branches before.
    stack: list[tuple[bool, int]] = []
    opened: list[int] = []
    for at, line in enumerate(lines):
        found = re.match(r"\s*#\s*(if|ifdef|ifndef|else|elif|endif)\b(.*)", line)
        if found is None:
            if any(dead for dead, _ in stack):
                lines[at] = " " * len(line)
            elif opened:
                opened[-1] += line.count("{") - line.count("}")
        elif found[1] in ("if", "ifdef", "ifndef"):
            stack.append((found[1] == "if" and found[2].strip() in ("0", "false"), 0))
            opened.append(0)
        elif found[1] in ("else", "elif") and stack:
            before = stack[-1][1] or opened[-1]
            stack[-1] = (before != 0, before)
        elif stack:
            _, before = stack.pop()
            inner = opened.pop()
            if opened:
                opened[-1] += before or inner


def chunks(code: str, start: int, stop: int, scope: str = "") -> Iterator[Chunk]:
    """Declarations between two places; namespaces and extern "C" blocks are entered."""
    i = begin = start
    depth = 0
    while i < stop:
        char = code[i]
        if char in "([":
            depth += 1
        elif char in ")]":
            depth = max(depth - 1, 0)
        elif char == ";" and depth == 0:
            yield _one(scope, code, begin, i + 1, None)
            begin = i + 1
        elif char == "{":
            close = _closing(code, i, stop)
            head = code[begin:i]
            if depth == 0 and _is_container(head):
                named = re.search(r"namespace\s+([\w:\s]*\w)", head)
                inner = f"{scope}{named[1]}::" if named else scope
                yield from chunks(code, i + 1, close, inner)
                begin = i = close + 1
                continue
            i = close
            if depth == 0 and not _goes_on(head, code, close + 1, stop):
                yield _one(scope, code, begin, close + 1, begin + len(head))
                begin = close + 1
        i += 1
    if code[begin:stop].strip():
        yield _one(scope, code, begin, stop, None)


def _closing(code: str, opened: int, stop: int) -> int:
    depth = 0
    for i in range(opened, stop):
        if code[i] == "{":
            depth += 1
        elif code[i] == "}":
            depth -= 1
            if depth == 0:
                return i
    return stop - 1


def _is_container(head: str) -> bool:
    words = head.split()
    return bool(words) and (
        words[0] == "namespace"
        or words[:2] == ["inline", "namespace"]
        or re.fullmatch(r"\s*extern\s*\"\s*\"\s*", head) is not None
    )


def _goes_on(head: str, code: str, at: int, stop: int) -> bool:
    """Whether a declaration goes on behind its braces, to a semicolon."""
    if "(" in _without_angles(head) and not re.search(r"=\s*$", head):
        return False  # a function's body
    rest = code[at:stop].lstrip()
    return bool(_TYPES.search(head)) or "=" in head or rest.startswith((";", ","))


def _without_angles(head: str) -> str:
    """The head without template arguments and attributes in double underscores."""
    previous = None
    while previous != head:
        previous, head = head, re.sub(r"<[^<>]*>", " ", head)
    return re.sub(r"__\w+__\s*\([^()]*(\([^()]*\))?[^()]*\)|alignas\s*\([^()]*\)", " ", head)


def _one(scope: str, code: str, start: int, stop: int, body: int | None) -> Chunk:
    text = code[start:stop]
    head = code[start : body if body is not None else stop].partition("{")[0]
    plain = _without_angles(head)
    words = set(_WORD.findall(text))
    head_words = set(_WORD.findall(head))
    before, paren, _ = plain.partition("(")
    device = bool(head_words & _QUALIFIERS)
    chunk = Chunk(start=start, stop=stop, words=words, scope=scope)
    chunk.launches = "<<<" in text
    chunk.always = bool(_ALWAYS_KEPT.match(text))
    if _TYPES.search(before) and "=" not in before and not paren:
        named = re.search(r"\b(?:struct|class|union|enum(?:\s+class)?)\b[^{;:]*", plain)
        chunk.declares = set(_WORD.findall(named[0])) if named else set()
        if re.search(r"\benum\b", before):
            chunk.declares |= words
        tail = text.rpartition("}")[2]
        chunk.declares |= set(_WORD.findall(tail))
        chunk.declares -= _KEYWORDS
        return chunk
    if alias := re.match(r"\s*namespace\s+(\w+)\s*=", plain):
        chunk.declares = {alias[1]}
        return chunk
    if re.match(r"\s*(typedef|using)\b", plain):
        chunk.declares = set(_WORD.findall(plain)) - _KEYWORDS
        chunk.usable = not re.search(r"\bstd\s*::", text) and not re.match(
            r"\s*using\s+namespace\s+std\b", text
        )
        return chunk
    function = bool(paren) and "=" not in before
    if function:
        names = _WORD.findall(before)
        chunk.declares = set(names[-1:])
        if re.search(r"\boperator\b", before):
            chunk.always = device
        if "__global__" in head_words and names:
            chunk.kernel = names[-1]
        chunk.template = "template" in head_words
        plain_host = not device and not chunk.template and not _CONSTANT.search(before)
        chunk.usable = device or not (plain_host or "__host__" in head_words)
        return chunk
    chunk.declares = set(re.findall(r"([A-Za-z_]\w*)\s*(?=[=\[;,({])", plain))
    chunk.usable = device or bool(_CONSTANT.search(plain))
    return chunk
