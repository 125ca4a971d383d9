"""What launches on the emulator found, as texts and plain numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gemm_lab.core.measurement import Measurement

if TYPE_CHECKING:  # a run on a GPU does not load the emulator
    from gemm_lab.emulator.findings import Counters, LineCounters
    from gemm_lab.emulator.launch import LaunchReport
    from gemm_lab.emulator.options import Watch

__all__ = ["counters_of", "observed", "race_texts", "watching"]


@contextmanager
def watching(
    backend: Any, *, races: Watch, counters: Watch = "off"
) -> Iterator[list[LaunchReport]]:
    """Watch the launches of an emulator backend; their reports gather in the list."""
    before = backend.options, backend.reports
    found: list[LaunchReport] = []
    backend.options, backend.reports = replace(before[0], races=races, counters=counters), found
    try:
        yield found
    finally:
        backend.options, backend.reports = before


def race_texts(
    reports: Sequence[LaunchReport], virtual: str | None = None, file: str | None = None
) -> tuple[str, ...]:
    """Each race once; the name `virtual` of the source reads `file`."""
    texts = dict.fromkeys(str(race) for report in reports for race in report.races)
    if virtual is None or file is None:
        return tuple(texts)
    return tuple(text.replace(virtual, file) for text in texts)


def counters_of(reports: Sequence[LaunchReport], *, lines: bool = False) -> dict[str, Any] | None:
    """Counters of the launches, one group each when there are several; None when they were off.

    With `lines` the instruction mix and every source line that moves or computes something.
    """
    found = [_plain(r.counters, lines) for r in reports if r.counters is not None]
    if len(found) > 1:
        return {f"launch_{number}": counters for number, counters in enumerate(found, 1)}
    return found[0] if found else None


def observed(measured: Measurement, reports: Sequence[LaunchReport]) -> Measurement:
    """A Measurement with what the emulator saw: counters, and races as warnings."""
    if not reports:
        return measured
    everywhere = all(r.counters is not None and r.counters.blocks == r.blocks_run for r in reports)
    warnings = [*measured.warnings, *race_texts(reports)]
    return replace(
        measured,
        counters=counters_of(reports, lines=everywhere) or measured.counters,
        warnings=tuple(warnings),
    )


def _plain(counters: Counters, lines: bool) -> dict[str, Any]:
    found: dict[str, Any] = dict(counters.as_dict())
    if lines:
        found["mix"] = dict(sorted(counters.mix.items(), key=lambda item: -item[1]))
        found["lines"] = {
            f"{file.rpartition('/')[2]}:{line}": numbers
            for (file, line), one in sorted(counters.lines.items())
            if (numbers := _moving(one))
        }
    return found


def _moving(one: LineCounters) -> dict[str, int]:
    """Counters of a line that are not 0; nothing where it only counts instructions."""
    numbers = {name: value for name in one.__slots__ if (value := getattr(one, name))}
    return numbers if set(numbers) - {"warp_instructions", "thread_instructions"} else {}
