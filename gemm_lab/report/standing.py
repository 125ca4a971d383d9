"""How automatic choice stands against the library: means a suite, and the worst problems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from gemm_lab.core.kernel import format_value
from gemm_lab.core.measurement import Measurement
from gemm_lab.report.document import Document, Paragraph, Table
from gemm_lab.report.numbers import milliseconds

__all__ = ["Standing", "StandingGroup", "standing_document"]


@dataclass(frozen=True, kw_only=True)
class Standing:
    """One problem: the kernel that choice took beside the library, and the best that was tried.

    Attributes:
        taken: its measurement. A wrong or failed one is not: the next in order is. The best where
            no file says what choice took.
        ratio: library time over its time, copies included; `best_ratio` likewise.
        copies_ms: of operands that have to be copied for it, by the model; 0 when none has to.
        bound: what it waits for, by the model; "" where the model does not know it.
    """

    taken: Measurement
    ratio: float
    best: Measurement
    best_ratio: float
    copies_ms: float
    bound: str


@dataclass(frozen=True, kw_only=True)
class StandingGroup:
    """All problems of a suite in one arithmetic and layout on one card, worst first.

    `without` counts problems that have no right kernel that was timed beside the library.
    """

    suite: str
    device: str
    dtype: str
    layout: str
    standings: tuple[Standing, ...]
    without: int

    @property
    def mean(self) -> float:
        """Geometric mean of the ratios of what choice took."""
        return geometric_mean([s.ratio for s in self.standings])

    @property
    def best_mean(self) -> float:
        """The same of the best that was tried."""
        return geometric_mean([s.best_ratio for s in self.standings])


def standing_document(groups: Sequence[StandingGroup], *, worst: int = 10) -> Document:
    """A table of all groups, then the worst problems of each suite."""
    if not groups:
        return (Paragraph(text="nothing was timed beside the library"),)
    blocks: list[Table | Paragraph] = [_means(groups)]
    for suite in dict.fromkeys(g.suite for g in groups):
        blocks.append(_worst(suite, [g for g in groups if g.suite == suite], worst))
    if any(s.copies_ms for g in groups for s in g.standings):
        text = "copies: operands that are copied first, added to the time by the model"
        blocks.append(Paragraph(text=text, style="quiet"))
    return tuple(blocks)


def _means(groups: Sequence[StandingGroup]) -> Table:
    several = any(s.best is not s.taken for g in groups for s in g.standings)
    columns = ("suite", "type", "card", "problems", "chosen / library", "best tried / library")
    rows = [
        (
            g.suite or "all",
            f"{g.dtype} {g.layout}",
            g.device,
            f"{len(g.standings)}" + (f" ({g.without} without)" if g.without else ""),
            f"{g.mean:.3f}",
            f"{g.best_mean:.3f}",
        )
        for g in groups
    ]
    count = len(columns) if several else len(columns) - 1
    return Table(
        title="Geometric mean of library time over kernel time",
        columns=columns[:count],
        rows=tuple(row[:count] for row in rows),
        right=frozenset(columns[3:]),
    )


def _worst(suite: str, groups: Sequence[StandingGroup], count: int) -> Table:
    found = sorted((s for g in groups for s in g.standings), key=lambda s: s.ratio)[:count]
    rows = [
        (
            _shape(s.taken),
            f"{s.taken.problem.dtype} {s.taken.problem.layout}",
            f"{s.ratio:.3f}",
            _milliseconds(s),
            s.taken.variant,
            s.bound,
            "" if s.best is s.taken else f"{s.best_ratio:.3f} {_named(s.best, s.taken)}",
        )
        for s in found
    ]
    columns = ("shape", "type", "of the library", "time", "chosen", "waits for", "better was")
    kept = [i for i in range(len(columns)) if any(row[i] for row in rows)]
    return Table(
        title=f"The worst of {suite}" if suite else "The worst",
        columns=tuple(columns[i] for i in kept),
        rows=tuple(tuple(row[i] for i in kept) for row in rows),
        right=frozenset({"of the library", "time"}),
    )


def _shape(m: Measurement) -> str:
    p = m.problem
    return f"{f'{p.batch}x' if p.batch != 1 else ''}{p.m}x{p.n}x{p.k}"


def _milliseconds(s: Standing) -> str:
    own = milliseconds(s.taken.median_ms or 0.0)
    return f"{own} + copies {milliseconds(s.copies_ms)}" if s.copies_ms else own


def _named(m: Measurement, other: Measurement) -> str:
    """The kernel, and the tunables in which it differs where both are of one variant."""
    if m.variant != other.variant:
        return m.variant
    changed = [f"{k}={format_value(v)}" for k, v in m.config.items() if other.config.get(k) != v]
    return " ".join([m.variant, *changed])
