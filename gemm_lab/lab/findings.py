"""What launches on the emulator found, as texts and plain numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from gemm_lab.emulator import LaunchReport
from gemm_lab.emulator.options import Watch

__all__ = ["counters_of", "race_texts", "watching"]


@contextmanager
def watching(
    backend: Any, *, races: Watch, counters: Watch = "off"
) -> Iterator[list[LaunchReport]]:
    """Watch the launches of an emulator backend; their reports gather in the list."""
    before = backend.options
    backend.options = replace(before, races=races, counters=counters)
    backend.clear_reports()
    try:
        yield backend.reports
    finally:
        backend.options = before


def race_texts(
    reports: Sequence[LaunchReport], virtual: str | None = None, file: str | None = None
) -> tuple[str, ...]:
    """Each race once; the name `virtual` of the source reads `file`."""
    texts = dict.fromkeys(str(race) for report in reports for race in report.races)
    if virtual is None or file is None:
        return tuple(texts)
    return tuple(text.replace(virtual, file) for text in texts)


def counters_of(reports: Sequence[LaunchReport]) -> dict[str, Any] | None:
    """Counters of the launches, one group each when there are several; None when they were off."""
    found = [report.counters for report in reports if report.counters is not None]
    if not found:
        return None
    if len(found) == 1:
        return dict(found[0].as_dict())
    return {f"launch_{number}": dict(c.as_dict()) for number, c in enumerate(found, 1)}
