"""The ladder: what every rung is worth over the one before, from Measurements alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from gemm_lab.core.measurement import MeasuredProblem, Measurement, Ratio
from gemm_lab.core.statistics import paired_ratio
from gemm_lab.report.document import Document, Paragraph, Style, Table
from gemm_lab.report.numbers import milliseconds, percent, significant
from gemm_lab.report.survey import COUNTED, counted

__all__ = ["Ladder", "Rung", "ladder_document", "ladders"]


@dataclass(frozen=True, kw_only=True)
class Rung:
    """The best right configuration of a variant; a wrong or failed one when none is right.

    `step` is the time of the rung before over this one's, with an interval where the two shared
    their rounds (else low = high = median).
    """

    measurement: Measurement
    step: Ratio | None

    @property
    def right(self) -> bool:
        """Whether it ran and was not found wrong."""
        return _right(self.measurement)


@dataclass(frozen=True, kw_only=True)
class Ladder:
    """All rungs of one problem on one card, in the order in which they were measured."""

    problem: MeasuredProblem
    device: str
    backend: str
    rungs: tuple[Rung, ...]


def ladders(measurements: Iterable[Measurement]) -> tuple[Ladder, ...]:
    """One ladder a problem and card, in the order of their first measurements."""
    by_problem: dict[Any, list[Measurement]] = {}
    for m in measurements:
        by_problem.setdefault((m.problem, m.backend, m.device), []).append(m)
    return tuple(
        Ladder(
            problem=problem,
            device=device,
            backend=backend,
            rungs=tuple(_rungs(found)),
        )
        for (problem, backend, device), found in by_problem.items()
    )


def ladder_document(found: Sequence[Ladder], *, title: bool = True) -> Document:
    """A table a ladder: correctness, time, rate, the step from rung to rung, the library."""
    blocks: list[Table | Paragraph] = []
    for ladder in found:
        blocks.append(_table(ladder, title))
        library = _library_text(ladder)
        if library:
            blocks.append(Paragraph(text=library, style="quiet"))
    return tuple(blocks)


def _rungs(measurements: Sequence[Measurement]) -> list[Rung]:
    best: dict[str, Measurement] = {}
    for m in measurements:
        known = best.get(m.variant)
        if known is None or _rank(m) > _rank(known):
            best[m.variant] = m
    rungs: list[Rung] = []
    before: Measurement | None = None
    for m in best.values():
        rungs.append(Rung(measurement=m, step=None if before is None else _step(before, m)))
        if _right(m) and m.median_ms is not None:
            before = m
    return rungs


def _rank(m: Measurement) -> tuple[bool, float]:
    return (_right(m), m.tflops or 0.0)


def _right(m: Measurement) -> bool:
    return m.error is None and m.verified is not False


def _step(before: Measurement, m: Measurement) -> Ratio | None:
    if not _right(m) or not m.median_ms or not before.median_ms:
        return None
    together = m.group is not None and m.group == before.group
    if together and len(m.samples_ms) == len(before.samples_ms):
        return paired_ratio(before.samples_ms, m.samples_ms)
    plain = before.median_ms / m.median_ms
    return Ratio(median=plain, low=plain, high=plain)


def _table(ladder: Ladder, title: bool) -> Table:
    numbers = ("time", "TFLOP/s", "x the rung before", "of the library", *COUNTED.values())
    rows: list[tuple[str, ...]] = []
    styles: list[Style] = []
    for rung in ladder.rungs:
        m = rung.measurement
        ratio = m.ratio_to_baseline if rung.right else None
        rows.append(
            (
                m.variant,
                _verdict(m),
                "" if m.median_ms is None else milliseconds(m.median_ms),
                "" if m.tflops is None else significant(m.tflops),
                "" if rung.step is None else _spread(rung.step),
                "" if ratio is None else percent(ratio.median),
                *counted(m),
            )
        )
        styles.append("" if rung.right else "bad")
    columns = ("kernel", "result", *numbers)
    # Without a GPU there are no times, with one no counters.
    kept = [i for i in range(len(columns)) if i < 2 or any(row[i] for row in rows)]
    return Table(
        title=_title(ladder) if title else "",
        columns=tuple(columns[i] for i in kept),
        rows=tuple(tuple(row[i] for i in kept) for row in rows),
        right=frozenset(numbers),
        styles=tuple(styles),
    )


def _title(ladder: Ladder) -> str:
    p = ladder.problem
    batch = f"{p.batch} x " if p.batch != 1 else ""
    where = ladder.device
    return f"{batch}{p.m} x {p.n} x {p.k}, {p.dtype}, layout {p.layout}, {where}"


def _verdict(m: Measurement) -> str:
    if m.error is not None:
        return "failed"
    return {True: "right", False: "WRONG", None: "not verified"}[m.verified]


def _spread(ratio: Ratio) -> str:
    """2.51 (2.49 to 2.53), or 2.51 where the interval rounds away."""
    middle, low, high = (f"{x:.2f}" for x in (ratio.median, ratio.low, ratio.high))
    return middle if low == high else f"{middle} ({low} to {high})"


def _library_text(ladder: Ladder) -> str:
    """The library beside the highest rung: lower ones may have been measured in another run."""
    for rung in reversed(ladder.rungs):
        base = rung.measurement.baseline
        if base is not None and base.median_ms is not None:
            rate = "" if base.tflops is None else f"{significant(base.tflops)} TFLOP/s, "
            return (
                f"the library: {base.name}, {rate}{milliseconds(base.median_ms)}, "
                f"compute type {base.compute_type}"
            )
    return ""
