"""Where a key stands in a variant file, for messages."""

from __future__ import annotations

import re

__all__ = ["line_in"]


def line_in(text: str, key: str) -> int | None:
    """Line of "tunables.BM.default" in a variant file, as near as the text tells."""
    lines = text.splitlines()
    parts = key.split(".")
    for depth in range(len(parts), 0, -1):
        name = re.escape(".".join(parts[:depth]))
        header = re.compile(r"\s*\[\[?\s*" + name + r"\s*\]\]?")
        for number, line in enumerate(lines):
            if header.match(line):
                if depth == len(parts):
                    return number + 1
                inner = _key_after(lines, number + 1, parts[depth])
                return (inner if inner is not None else number) + 1
    top = _key_after(lines, 0, parts[0])
    return None if top is None else top + 1


def _key_after(lines: list[str], start: int, name: str) -> int | None:
    wanted = re.compile(r"\s*[\"']?" + re.escape(name) + r"[\"']?\s*=")
    for number in range(start, len(lines)):
        if wanted.match(lines[number]):
            return number
        if lines[number].strip() == "---*/" or (start and re.match(r"\s*\[", lines[number])):
            return None
    return None
