"""The device side of an ordinary .cu file, every line where it was.

A tutorial's file has a `main`, launchers, `#include <cstdio>`; NVRTC takes none of it. What the
wanted kernel does not name, directly or through others, is blanked, so that a fault still points
into the user's file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

__all__ = ["DeviceText", "device_text", "kernel_names"]

_FIXED_WIDTH = (
    "typedef signed char int8_t; typedef short int16_t; typedef int int32_t; "
    "typedef long long int64_t; typedef unsigned char uint8_t; typedef unsigned short uint16_t; "
    "typedef unsigned int uint32_t; typedef unsigned long long uint64_t; "
    "typedef unsigned long long uintptr_t; typedef long long intptr_t;"
)
_FLOATS = (
    "constexpr float FLT_MAX = 3.402823466e+38f, FLT_MIN = 1.175494351e-38f, "
    "FLT_EPSILON = 1.192092896e-07f; "
    "constexpr double DBL_MAX = 1.7976931348623157e308, DBL_EPSILON = 2.220446049250313e-16;"
)
_WHOLES = (
    "constexpr int INT_MAX = 2147483647, INT_MIN = -2147483647 - 1; "
    "constexpr unsigned UINT_MAX = 4294967295u; "
    "constexpr long long LLONG_MAX = 9223372036854775807LL;"
)
# What stands in one line for a host header; headers not named here are left out when they are
# none of CUDA's device headers.
_SUBSTITUTES = {
    "cstdint": _FIXED_WIDTH,
    "stdint.h": _FIXED_WIDTH,
    "inttypes.h": _FIXED_WIDTH,
    "cfloat": _FLOATS,
    "float.h": _FLOATS,
    "climits": _WHOLES,
    "limits.h": _WHOLES,
}
_DEVICE_HEADER = re.compile(
    r"cuda_(fp16|bf16|fp8|fp4|fp6|pipeline|awbarrier)\w*\.h(pp)?|mma\.h|cooperative_groups.*"
    r"|cuda/.*|cub/.*|vector_types\.h|math_constants\.h|sm_\d+_\w+\.h|crt/.*"
)
_INCLUDE = re.compile(r'[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]')
_DEFINE = re.compile(r"\s*#\s*define\s+(\w+)")
_PREFIX = re.compile(r"^\w*\"$")
_WORD = re.compile(r"[A-Za-z_]\w*")
_QUALIFIERS = {"__global__", "__device__", "__constant__", "__shared__", "__managed__"}
_TYPES = re.compile(r"\b(struct|class|union|enum)\b")
_ALWAYS_KEPT = re.compile(r"^\s*(using\s+namespace\s+(?!std\b)|static_assert\b)")
_CONSTANT = re.compile(r"\b(const|constexpr)\b")


@dataclass(frozen=True, kw_only=True)
class DeviceText:
    """Source for NVRTC. `kernels` are the __global__ names of the file, in order."""

    source: str
    kernels: tuple[str, ...]
    dropped_includes: tuple[str, ...]


@dataclass(kw_only=True)
class _Chunk:
    """One declaration at namespace level: text[start:stop]."""

    start: int
    stop: int
    declares: set[str] = field(default_factory=set)
    words: set[str] = field(default_factory=set)
    kernel: str | None = None
    usable: bool = True  # on the device at all
    always: bool = False
    kept: bool = False


def device_text(text: str, entry: str | None) -> DeviceText:
    """What NVRTC needs of a file for one kernel; "k<32>" and "space::k" name it as C++ does.

    None, or a kernel that only a macro spells out, keeps all that may run on a device.
    """
    text = text.replace("\r\n", "\n")
    code = _without_comments(text)
    code, macros = _without_directives(code)
    chunks = list(_chunks(code, 0, len(code)))
    kernels = tuple(dict.fromkeys(c.kernel for c in chunks if c.kernel))
    _keep(chunks, macros, None if entry is None else _base_name(entry))
    source = list(text)
    for chunk in chunks:
        if not chunk.kept:
            for i in range(chunk.start, chunk.stop):
                # Directives within stay: an #if must keep its #endif.
                if code[i] != "\n" and not code[i].isspace():
                    source[i] = " "
    for start, stop in _comments(text):
        for i in range(start, stop):
            if source[i] != "\n":
                source[i] = " "
    made, dropped = _includes("".join(source))
    return DeviceText(source=made, kernels=kernels, dropped_includes=dropped)


def kernel_names(text: str) -> tuple[str, ...]:
    """The __global__ functions of a file, in order."""
    return device_text(text, None).kernels


def _base_name(entry: str) -> str:
    return entry.partition("<")[0].rpartition("::")[2].strip()


# ---- what is needed ----


def _keep(chunks: list[_Chunk], macros: dict[str, set[str]], entry: str | None) -> None:
    roots = [c for c in chunks if c.kernel is not None and c.kernel == entry]
    if not roots:
        roots = [c for c in chunks if c.usable and (c.kernel or entry is None or entry in c.words)]
    roots += [c for c in chunks if c.always]
    by_name: dict[str, list[_Chunk]] = {}
    for chunk in chunks:
        if chunk.usable:
            for name in chunk.declares:
                by_name.setdefault(name, []).append(chunk)
    waiting: list[str] = []
    seen: set[str] = set()

    def take(chunk: _Chunk) -> None:
        if not chunk.kept:
            chunk.kept = True
            waiting.extend(chunk.words)

    for chunk in roots:
        take(chunk)
    while waiting:
        word = waiting.pop()
        if word in seen:
            continue
        seen.add(word)
        waiting.extend(macros.get(word, ()))
        for chunk in by_name.get(word, ()):
            take(chunk)


# ---- reading ----


def _comments(text: str) -> Iterator[tuple[int, int]]:
    """Spans of comments; strings are stepped over."""
    for kind, start, stop in _tokens(text):
        if kind == "comment":
            yield start, stop


def _tokens(text: str) -> Iterator[tuple[str, int, int]]:
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


def _without_comments(text: str) -> str:
    """The text with comments, and the insides of literals, as blanks."""
    out = list(text)
    for kind, start, stop in _tokens(text):
        inner = (start, stop) if kind == "comment" else (start + 1, stop - 1)
        for i in range(*inner):
            if out[i] != "\n":
                out[i] = " "
    return "".join(out)


def _without_directives(code: str) -> tuple[str, dict[str, set[str]]]:
    """The code with directives as blanks, and the words behind each macro."""
    lines = code.split("\n")
    macros: dict[str, set[str]] = {}
    i = 0
    while i < len(lines):
        if not lines[i].lstrip().startswith("#"):
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
            lines[at] = " " * len(lines[at])
        i += 1
    return "\n".join(lines), macros


def _chunks(code: str, start: int, stop: int) -> Iterator[_Chunk]:
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
            yield _chunk(code, begin, i + 1, None)
            begin = i + 1
        elif char == "{":
            close = _closing(code, i, stop)
            head = code[begin:i]
            if depth == 0 and _is_container(head):
                yield from _chunks(code, i + 1, close)
                begin = i = close + 1
                continue
            i = close
            if depth == 0 and not _goes_on(head, code, close + 1, stop):
                yield _chunk(code, begin, close + 1, begin + len(head))
                begin = close + 1
        i += 1
    if code[begin:stop].strip():
        yield _chunk(code, begin, stop, None)


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


def _chunk(code: str, start: int, stop: int, body: int | None) -> _Chunk:
    text = code[start:stop]
    head = code[start : body if body is not None else stop]
    plain = _without_angles(head)
    words = set(_WORD.findall(text))
    head_words = set(_WORD.findall(head))
    before, paren, _ = plain.partition("(")
    device = bool(head_words & _QUALIFIERS)
    chunk = _Chunk(start=start, stop=stop, words=words, always=bool(_ALWAYS_KEPT.match(text)))
    if _TYPES.search(before) and "=" not in before and (body is not None or "{" in text or not paren):
        named = re.search(r"\b(?:struct|class|union|enum(?:\s+class)?)\b[^{;:]*", plain)
        chunk.declares = set(_WORD.findall(named[0])) if named else set()
        if re.search(r"\benum\b", before):
            chunk.declares |= words
        tail = text.rpartition("}")[2]
        chunk.declares |= set(_WORD.findall(tail))
        return chunk
    if re.match(r"\s*(typedef|using)\b", plain):
        chunk.declares = set(_WORD.findall(plain))
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
        template = "template" in head_words
        plain_host = not device and not template and not _CONSTANT.search(before)
        chunk.usable = device or not (plain_host or "__host__" in head_words)
        return chunk
    chunk.declares = set(re.findall(r"([A-Za-z_]\w*)\s*(?=[=\[;,({])", plain))
    chunk.usable = device or bool(_CONSTANT.search(plain))
    return chunk


def _includes(text: str) -> tuple[str, tuple[str, ...]]:
    """Each include of a host header replaced by what stands for it, on its own line."""
    dropped: list[str] = []
    given: set[str] = set()
    lines = text.split("\n")
    for at, line in enumerate(lines):
        found = _INCLUDE.match(line)
        if found is None or _DEVICE_HEADER.fullmatch(found[1]):
            continue
        dropped.append(found[1])
        substitute = _SUBSTITUTES.get(found[1], "")
        lines[at] = "" if substitute in given else substitute
        given.add(substitute)
    if _FIXED_WIDTH not in given and lines and _uses_fixed_width("\n".join(lines)):
        # <cuda_runtime.h> and others bring them along.
        lines[0] = f"{_FIXED_WIDTH} {lines[0]}" if not lines[0].lstrip().startswith("#") else lines[0]
    return "\n".join(lines), tuple(dropped)


def _uses_fixed_width(text: str) -> bool:
    words: Iterable[str] = _WORD.findall(text)
    return any(re.fullmatch(r"u?int(8|16|32|64|ptr)_t", w) for w in words)
