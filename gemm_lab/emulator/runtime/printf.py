"""C's printf over the bytes that vprintf is given."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable

__all__ = ["format_printf", "printf_arguments"]

SPEC = re.compile(r"%([-+ #0]*)(\*|\d+)?(?:\.(\*|\d+))?(hh|h|ll|l|z|j|t)?([diouxXeEfgGaAcsp%])")


def _fields(text: str) -> list[re.Match[str]]:
    return [match for match in SPEC.finditer(text) if match[5] != "%"]


def printf_arguments(text: str) -> int:
    """Upper bound of the argument bytes that a format reads."""
    return sum(8 * (1 + (m[2] == "*") + (m[3] == "*")) for m in _fields(text)) + 8


def format_printf(text: str, data: bytes, string: Callable[[int], str]) -> str:
    """The text that printf writes. `data` holds promoted arguments with natural alignment."""
    at = 0

    def take(code: str, size: int) -> int | float:
        nonlocal at
        at = -(-at // size) * size
        raw = data[at : at + size].ljust(size, b"\0")
        at += size
        value: int | float = struct.unpack("<" + code, raw)[0]
        return value

    def replace(match: re.Match[str]) -> str:
        flags, width, precision, length, kind = match.groups()
        if kind == "%":
            return "%"
        spec = "%" + flags
        if width:
            spec += str(take("i", 4)) if width == "*" else width[:4]
        if precision is not None:
            spec += "." + (str(max(int(take("i", 4)), 0)) if precision == "*" else precision[:4])
        if kind in "eEfgGaA":
            value = take("d", 8)
            return (spec + kind) % value if kind not in "aA" else float(value).hex()
        if kind == "s":
            return (spec + "s") % string(int(take("Q", 8)))
        if kind == "p":
            return (spec + "s") % hex(int(take("Q", 8)))
        if kind == "c":
            return (spec + "s") % chr(int(take("I", 4)) & 0xFF)
        wide = length in ("l", "ll", "z", "j", "t")
        signed = kind in "di"
        number = int(
            take(("q" if signed else "Q") if wide else ("i" if signed else "I"), 8 if wide else 4)
        )
        if length in ("h", "hh"):
            bits = 16 if length == "h" else 8
            number &= (1 << bits) - 1
            if signed and number >> (bits - 1):
                number -= 1 << bits
        return (spec + ("d" if kind in "diu" else kind)) % number

    return SPEC.sub(replace, text)
