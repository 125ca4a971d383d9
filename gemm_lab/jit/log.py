"""NVRTC's and ptxas's log: resources, warnings, and errors shown against the source."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gemm_lab.core.kernel import Resources

__all__ = [
    "LogMessage",
    "first_error",
    "log_warnings",
    "numbered_source",
    "parse_resources",
    "ptx_source_line",
]

STATIC_SMEM_LIMIT_BYTES = 48 * 1024

_COMPILING = re.compile(r"ptxas info\s*: Compiling entry function '([^']+)'[^\n]*")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"ptxas info\s*: Used (?P<count>\d+) registers(?P<rest>.*)")
_SMEM = re.compile(r"(\d+)(?:\+\d+)? bytes smem")
_FRONT_ERROR = re.compile(
    r"^(?P<file>[^\s(]+)\((?P<line>\d+)\): (?:catastrophic )?error(?: #\S+)?: (?P<text>.+)$",
    re.MULTILINE,
)
_PTXAS_ERROR = re.compile(r"^ptxas .*?line (?P<line>\d+); error\s*: (?P<text>.+)$", re.MULTILINE)
_WARNING = re.compile(r"\bwarning(?: #\S+|\s*):|^ptxas info\s*: \(C\d+\)", re.IGNORECASE)
_OTHER_ERROR = re.compile(r"^.*?\b(?:error|fatal)\s*:\s*(?P<text>.+)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class LogMessage:
    """One message of the log. `file` is "" for ptxas, whose `line` counts lines of PTX."""

    text: str
    file: str = ""
    line: int | None = None


def parse_resources(log: str) -> dict[str, Resources]:
    """What ptxas -v reports, by entry; bytes a block for shared memory, a thread for spills.

    Spills of functions that were not inlined count for the entry that they were compiled with.
    """
    found: dict[str, Resources] = {}
    # Split gives what stands before, then name and text by turns.
    _, *pieces = _COMPILING.split(log)
    for entry, block in zip(pieces[::2], pieces[1::2], strict=True):
        registers, frames = _REGISTERS.search(block), _FRAME.findall(block)
        if registers is None or not frames:
            continue
        smem = _SMEM.search(registers["rest"])
        found[entry] = Resources(
            registers_per_thread=int(registers["count"]),
            static_smem_bytes=int(smem[1]) if smem else 0,
            stack_bytes=int(frames[0][0]),
            spill_store_bytes=sum(int(frame[1]) for frame in frames),
            spill_load_bytes=sum(int(frame[2]) for frame in frames),
        )
    return found


def log_warnings(log: str) -> tuple[str, ...]:
    """Warnings of a compilation that succeeded, one line each, and spills as ptxas counts them."""
    lines = []
    for line in log.splitlines():
        if _WARNING.search(line):
            lines.append(line.strip())
    for entry, used in parse_resources(log).items():
        if used.spill_store_bytes or used.spill_load_bytes:
            lines.append(
                f"{entry}: registers spill to local memory, {used.spill_store_bytes} bytes stored "
                f"and {used.spill_load_bytes} bytes loaded a thread"
            )
    return tuple(dict.fromkeys(lines))


def first_error(log: str) -> LogMessage:
    """The first error: later ones often follow from it."""
    if match := _FRONT_ERROR.search(log):
        return LogMessage(text=match["text"], file=match["file"], line=int(match["line"]))
    if match := _PTXAS_ERROR.search(log):
        return LogMessage(text=match["text"], line=int(match["line"]))
    if match := _OTHER_ERROR.search(log):
        return LogMessage(text=match["text"])
    for entry, used in parse_resources(log).items():
        # ptxas -v reports such an entry like any other, and NVRTC fails without a word.
        if used.static_smem_bytes > STATIC_SMEM_LIMIT_BYTES:
            return LogMessage(
                text=f"{entry} uses too much shared data: {used.static_smem_bytes} bytes of static "
                f"shared memory, and {STATIC_SMEM_LIMIT_BYTES} is the limit"
            )
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return LogMessage(text=lines[0] if lines else "NVRTC gave no message")


def numbered_source(source: str, line: int | None = None, *, around: int = 4) -> str:
    """The source with line numbers; with `line`, that one marked and `around` lines about it."""
    lines = source.splitlines()
    width = len(str(len(lines)))
    first, last = 1, len(lines)
    if line is not None:
        first, last = max(1, line - around), min(len(lines), line + around)
    return "\n".join(
        f"{'>' if number == line else ' '} {number:>{width}} | {lines[number - 1]}".rstrip()
        for number in range(first, last + 1)
    )


def ptx_source_line(ptx: str, ptx_line: int) -> int | None:
    """The source line behind a line of PTX: the last `.loc` before it, of file 1, the source."""
    for text in reversed(ptx.splitlines()[:ptx_line]):
        if match := re.match(r"\s*\.loc\s+(\d+)\s+(\d+)", text):
            return int(match[2]) if match[1] == "1" else None
    return None
