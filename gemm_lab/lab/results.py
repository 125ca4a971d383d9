"""Many measurements: a list that can be filtered, ranked, written and read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, overload

from gemm_lab.core.measurement import Measurement
from gemm_lab.errors import UsageError
from gemm_lab.lab.export import row, to_csv, to_markdown
from gemm_lab.lab.journal import DamagedLine, Journal, read_journal
from gemm_lab.lab.keys import measurement_key

__all__ = ["Pruned", "Results"]


@dataclass(frozen=True, kw_only=True)
class Pruned:
    """A candidate that was never compiled, and why."""

    variant: str
    config: dict[str, Any]
    problem: str
    reason: str


class Results(Sequence[Measurement]):
    """Measurements in the order in which they were made.

    Attributes:
        pruned: candidates that a rule or a limit ruled out before compiling.
        resumed: how many of the measurements were in the journal already.
        interrupted: whether Ctrl-C ended it before all was done.
        damaged: lines of the file that could not be read.
    """

    def __init__(
        self,
        measurements: Iterable[Measurement] = (),
        *,
        pruned: Iterable[Pruned] = (),
        resumed: int = 0,
        interrupted: bool = False,
        damaged: Iterable[DamagedLine] = (),
    ) -> None:
        self._measurements = tuple(measurements)
        self.pruned = tuple(pruned)
        self.resumed = resumed
        self.interrupted = interrupted
        self.damaged = tuple(damaged)

    def __len__(self) -> int:
        return len(self._measurements)

    def __iter__(self) -> Iterator[Measurement]:
        return iter(self._measurements)

    @overload
    def __getitem__(self, index: int) -> Measurement: ...
    @overload
    def __getitem__(self, index: slice) -> Results: ...
    def __getitem__(self, index: int | slice) -> Measurement | Results:
        if isinstance(index, slice):
            return Results(self._measurements[index])
        return self._measurements[index]

    def __add__(self, other: Iterable[Measurement]) -> Results:
        return Results((*self._measurements, *other))

    def __repr__(self) -> str:
        wrong = sum(m.verified is False for m in self)
        failed = sum(m.error is not None for m in self)
        return f"<Results: {len(self)} measurements, {wrong} wrong, {failed} failed>"

    @property
    def right(self) -> Results:
        """Those that ran and were not found wrong."""
        return self.filter(lambda m: m.error is None and m.verified is not False)

    @property
    def wrong(self) -> Results:
        """Those whose result was outside its bound."""
        return self.filter(lambda m: m.verified is False)

    @property
    def failed(self) -> Results:
        """Those that gave no result."""
        return self.filter(lambda m: m.error is not None)

    def latest(self) -> Results:
        """The last measurement of every question; a journal may hold one twice."""
        return Results({measurement_key(m): m for m in self}.values())

    def filter(self, keep: Callable[[Measurement], bool] | None = None, **facts: Any) -> Results:
        """Those for which `keep` holds and whose facts are as given.

        A fact is a field of the measurement (variant="shared"), of its problem (m=4096) or a
        tunable (BM=64); a list allows several values.
        """

        def fits(m: Measurement) -> bool:
            return all(_allowed(_fact(m, name), wanted) for name, wanted in facts.items())

        known = {name for m in self for name in (*m.config, *asdict(m.problem))}
        for name in facts:
            if self and name not in known and not hasattr(self[0], name):
                raise UsageError(f"no measurement has {name!r}", hint=", ".join(sorted(known)))
        return Results(m for m in self if fits(m) and (keep is None or keep(m)))

    def best(self) -> Measurement:
        """The right one with the highest rate; the fastest where no rate is known.

        UsageError when none was timed.
        """
        timed = [m for m in self.right if m.median_ms is not None]
        if not timed:
            raise UsageError(
                "there is no right, timed measurement",
                hint="only a GPU is timed; `.failed` and `.wrong` say what went otherwise",
            )
        return max(timed, key=lambda m: (m.tflops or 0.0, -(m.median_ms or 0.0)))

    def problems(self) -> list[Results]:
        """One Results a problem, in the order of their first measurements."""
        found: dict[Any, list[Measurement]] = {}
        for m in self:
            found.setdefault(m.problem, []).append(m)
        return [Results(ms) for ms in found.values()]

    def to_pandas(self) -> Any:
        """A DataFrame, a row a measurement, a column a fact and a tunable.

        UsageError when pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            raise UsageError(
                "pandas is not installed", hint="pip install 'gemm-lab[pandas]', or to_csv()"
            ) from None
        return pandas.DataFrame([row(m) for m in self])

    def to_csv(self) -> str:
        """Comma-separated values with a header; what is not known is empty."""
        return to_csv(self)

    def to_markdown(self) -> str:
        """A table for a README or an issue."""
        return to_markdown(self)

    def save(self, path: str | Path) -> None:
        """Append every measurement to a journal; see lab.journal."""
        with Journal(Path(path)) as journal:
            for m in self:
                journal.append(m)

    @classmethod
    def load(cls, path: str | Path) -> Results:
        """The measurements of a journal; UsageError when the file is none."""
        content = read_journal(Path(path))
        return cls(content.measurements, damaged=content.damaged)


def _fact(m: Measurement, name: str) -> Any:
    if name in m.config:
        return m.config[name]
    if hasattr(m.problem, name):
        return getattr(m.problem, name)
    return getattr(m, name, None)


def _allowed(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, (list, tuple, set, frozenset)):
        return value in wanted
    return bool(value == wanted)
