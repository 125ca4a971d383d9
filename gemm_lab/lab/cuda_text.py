"""The device side of an ordinary .cu file, every line where it was.

A tutorial's file has a `main`, launchers, `#include <cstdio>`; NVRTC takes none of it. What the
wanted kernel does not name, directly or through others, is blanked, so that a fault still points
into the user's file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from gemm_lab.lab.cuda_scan import Chunk, chunks, tokens, without_comments, without_directives

__all__ = ["DeviceText", "base_name", "device_text"]

_FIXED_WIDTH = (
    "typedef signed char int8_t; typedef short int16_t; typedef int int32_t; "
    "typedef long long int64_t; typedef unsigned char uint8_t; typedef unsigned short uint16_t; "
    "typedef unsigned int uint32_t; typedef unsigned long long uint64_t; "
    "typedef unsigned long long uintptr_t; typedef long long intptr_t; "
    "typedef unsigned char uchar; typedef unsigned short ushort; typedef unsigned int uint; "
    "typedef unsigned long ulong;"
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


@dataclass(frozen=True, kw_only=True)
class DeviceText:
    """Source for NVRTC, and what the file has.

    `kernels` are its __global__ functions by their plain name, in order, with the name that C++
    gives them from outside; `templates` those that need arguments.
    """

    source: str
    kernels: Mapping[str, str]
    templates: frozenset[str]
    dropped_includes: tuple[str, ...]


def device_text(text: str, entry: str | None) -> DeviceText:
    """What NVRTC needs of a file for one kernel; "k<32>" and "space::k" name it as C++ does.

    None, or a kernel that only a macro spells out, keeps all that may run on a device.
    """
    text = text.replace("\r\n", "\n")
    code, directives, macros = without_directives(without_comments(text))
    found = list(chunks(code, 0, len(code)))
    kernels = {c.kernel: c.scope + c.kernel for c in found if c.kernel}
    _keep(found, macros, None if entry is None else base_name(entry))
    source = list(text)
    for chunk in found:
        if not chunk.kept:
            _blank(source, chunk.start, chunk.stop, but=directives)
    for kind, start, stop in tokens(text):
        if kind == "comment":
            _blank(source, start, stop)
    made, dropped = _includes("".join(source))
    return DeviceText(
        source=made,
        kernels=kernels,
        templates=frozenset(c.kernel for c in found if c.kernel and c.template),
        dropped_includes=dropped,
    )


def base_name(entry: str) -> str:
    """`k` of `space::k<32>`."""
    return entry.partition("<")[0].rpartition("::")[2].strip()


def _blank(source: list[str], start: int, stop: int, but: frozenset[int] = frozenset()) -> None:
    for i in range(start, stop):
        if source[i] != "\n" and i not in but:
            source[i] = " "


# ---- what is needed ----


def _keep(chunks: list[Chunk], macros: dict[str, set[str]], entry: str | None) -> None:
    roots = [c for c in chunks if c.kernel is not None and c.kernel == entry]
    if not roots:
        # A macro may spell the kernel out; a function that launches it is none.
        spelt = [c for c in chunks if entry in c.words and not c.launches]
        roots = spelt or [c for c in chunks if c.usable and (c.kernel or entry is None)]
    roots += [c for c in chunks if c.always]
    by_name: dict[str, list[Chunk]] = {}
    for chunk in chunks:
        if chunk.usable:
            for name in chunk.declares:
                by_name.setdefault(name, []).append(chunk)
    waiting: list[str] = []
    seen: set[str] = set()

    def take(chunk: Chunk) -> None:
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


def _includes(text: str) -> tuple[str, tuple[str, ...]]:
    """Each include of a host header replaced by what stands for it, on its own line."""
    dropped: list[str] = []
    given: set[str] = set()
    lines = text.split("\n")
    code = "\n".join(line for line in lines if not _INCLUDE.match(line))
    for at, line in enumerate(lines):
        found = _INCLUDE.match(line)
        if found is None or (_DEVICE_HEADER.fullmatch(found[1]) and _is_used(found[1], code)):
            continue
        dropped.append(found[1])
        substitute = _SUBSTITUTES.get(found[1], "")
        lines[at] = "" if substitute in given else substitute
        given.add(substitute)
    if _FIXED_WIDTH not in given and _uses_fixed_width(text):
        # <cuda_runtime.h> and others bring them along.
        for at, line in enumerate(lines):
            if not line.lstrip().startswith("#"):
                lines[at] = f"{_FIXED_WIDTH} {line}"
                break
    return "\n".join(lines), tuple(dropped)


def _is_used(header: str, code: str) -> bool:
    """Whether what is left of the file names a library; its headers are large."""
    library = re.match(r"cooperative_groups|cub(?=/)|cuda(?=/)", header)
    return library is None or re.search(rf"\b{library[0]}\b", code) is not None


def _uses_fixed_width(text: str) -> bool:
    return re.search(r"\b(u?int(8|16|32|64|ptr)_t|u(char|short|int|long))\b", text) is not None
