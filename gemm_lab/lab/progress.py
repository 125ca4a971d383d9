"""What is going on and how long it will take, on stderr."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, Protocol

__all__ = ["LineProgress", "Progress", "Quiet", "RichProgress", "progress_for"]

_LINE_EVERY_S = 10.0


class Progress(Protocol):
    """A bar over `total` steps. `note` tells what is done now, `advance` that steps are done."""

    def start(self, what: str, total: int) -> None:
        """Begin anew with so many steps."""
        ...

    def note(self, text: str) -> None:
        """What is done now."""
        ...

    def advance(self, steps: int = 1) -> None:
        """Steps that are done."""
        ...

    def say(self, line: str) -> None:
        """A line that stays."""
        ...

    def __enter__(self) -> Progress: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None: ...


class Quiet:
    """Tells nothing."""

    def start(self, what: str, total: int) -> None:
        pass

    def note(self, text: str) -> None:
        pass

    def advance(self, steps: int = 1) -> None:
        pass

    def say(self, line: str) -> None:
        pass

    def __enter__(self) -> Quiet:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class LineProgress(Quiet):
    """For a file or a pipe: a plain line now and then, with the time left."""

    def __init__(self, every_s: float = _LINE_EVERY_S) -> None:
        self._every_s = every_s
        self._what, self._total, self._done = "", 0, 0
        self._began = self._last = time.monotonic()

    def start(self, what: str, total: int) -> None:
        self._what, self._total, self._done = what, total, 0
        self._began = self._last = time.monotonic()

    def advance(self, steps: int = 1) -> None:
        self._done += steps
        now = time.monotonic()
        if now - self._last < self._every_s and self._done < self._total:
            return
        self._last = now
        left_s = (now - self._began) / max(self._done, 1) * (self._total - self._done)
        left = f", {_clock(left_s)} left" if self._done < self._total else ""
        self.say(f"{self._what}: {self._done}/{self._total}{left}")

    def say(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    def __enter__(self) -> LineProgress:
        return self


class RichProgress(Quiet):
    """For a terminal: a bar with the time left and what is done now."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )
        from rich.progress import Progress as Bars

        self._bars: Any = Bars(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=Console(stderr=True),
            transient=True,
        )
        self._task: Any = None

    def start(self, what: str, total: int) -> None:
        if self._task is not None:
            self._bars.remove_task(self._task)
        self._task = self._bars.add_task(what, total=total, note="")

    def note(self, text: str) -> None:
        if self._task is not None:
            self._bars.update(self._task, note=text)

    def advance(self, steps: int = 1) -> None:
        if self._task is not None:
            self._bars.advance(self._task, steps)

    def say(self, line: str) -> None:
        self._bars.console.print(line, markup=False, highlight=False)

    def __enter__(self) -> RichProgress:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()


def progress_for(wanted: bool | Progress | None) -> Progress:
    """A bar on a terminal, lines where stderr is no terminal and it was asked for, else nothing."""
    if wanted is False:
        return Quiet()
    if wanted is not None and wanted is not True:
        return wanted
    if sys.stderr.isatty():
        return RichProgress()
    return LineProgress() if wanted else Quiet()


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
