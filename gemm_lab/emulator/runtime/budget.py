"""How long a launch may run: instructions and seconds, looked at now and then.

The scheduler compares its count of instructions with `next_look` alone. That is a quarter of a
second ahead or so, so that a look costs nothing and a kernel without end is noticed in time.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from math import isfinite

from gemm_lab.emulator.faults import BudgetFault, Where
from gemm_lab.emulator.options import Options, Progress
from gemm_lab.errors import UsageError

__all__ = ["DEFAULT_INSTRUCTIONS", "DEFAULT_SECONDS", "Budget"]

DEFAULT_INSTRUCTIONS = 20_000_000
DEFAULT_SECONDS = 1800.0
INSTRUCTIONS_VARIABLE = "GEMM_LAB_EMULATOR_INSTRUCTIONS"
SECONDS_VARIABLE = "GEMM_LAB_EMULATOR_SECONDS"
LOOK_S = 0.25
PROGRESS_S = 1.0
# Without a listener, a line in the log after so long, and each time as much time again has gone.
FIRST_WORD_S = 10.0
FIRST_LOOK, SHORTEST_LOOK, LONGEST_LOOK = 1000, 50, 1_000_000

_log = logging.getLogger("gemm_lab.emulator")


class Budget:
    """What is left of a launch's instructions and seconds.

    Attributes:
        next_look: `look` is wanted when more instructions than that were issued.
        blocks, blocks_done: of the launch; for those who wait, and to say how much is missing.
    """

    def __init__(
        self, options: Options, entry: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.max_instructions = _limit(
            options.max_instructions, INSTRUCTIONS_VARIABLE, DEFAULT_INSTRUCTIONS, "instructions"
        )
        self.max_seconds = _limit(options.max_seconds, SECONDS_VARIABLE, DEFAULT_SECONDS, "seconds")
        self.entry = entry
        self.blocks = self.blocks_done = 0
        self._progress = options.progress
        self._clock = clock
        self._begin = self._last_time = clock()
        self._last_steps = 0
        self._next_word = PROGRESS_S if options.progress else FIRST_WORD_S
        self.next_look = min(FIRST_LOOK, int(self.max_instructions))

    def look(self, steps: int, where: Callable[[], Where | None]) -> None:
        """BudgetFault when it is used up; else say how far the launch is, and look again later."""
        now = self._clock()
        seconds = now - self._begin
        if steps > self.max_instructions:
            raise self._fault("instruction budget", steps, seconds, where())
        if seconds > self.max_seconds:
            raise self._fault("time budget", steps, seconds, where())
        if seconds >= self._next_word:
            self._say(steps, seconds, where())
        rate = (steps - self._last_steps) / max(now - self._last_time, 1e-6)
        self._last_time, self._last_steps = now, steps
        patience = min(LOOK_S, max(self.max_seconds - seconds, 0.0))
        ahead = min(max(int(rate * patience), SHORTEST_LOOK), LONGEST_LOOK)
        self.next_look = min(steps + ahead, int(self.max_instructions))

    def _say(self, steps: int, seconds: float, where: Where | None) -> None:
        found = Progress(
            entry=self.entry,
            seconds=seconds,
            instructions=steps,
            max_instructions=int(self.max_instructions),
            max_seconds=self.max_seconds,
            blocks=self.blocks,
            blocks_done=self.blocks_done,
            where=where,
        )
        if self._progress is not None:
            self._next_word = seconds + PROGRESS_S
            self._progress(found)
        else:
            self._next_word = 2 * seconds
            _log.warning("%s", found)

    def _fault(self, kind: str, steps: int, seconds: float, where: Where | None) -> BudgetFault:
        spent = f"{self.entry} issued {steps:,} instructions in {seconds:.3g} s and has not ended"
        limit = (
            f"the limit is {int(self.max_instructions):,} instructions"
            if kind == "instruction budget"
            else f"the limit is {self.max_seconds:g} s"
        )
        text = f"{spent}: {limit}; {self.blocks_done} of {self.blocks} blocks are done"
        hint = "an endless loop, or a wait for what never comes? "
        if self.blocks_done:
            # Blocks of a launch are alike: those that are done tell what all need.
            share = self.blocks / self.blocks_done
            text += f", at that pace all need {_rounded(steps * share)} instructions and "
            text += f"{_rounded(seconds * share)} s"
            hint = "raise the limit, or take a smaller problem: "
        hint += (
            f"Options.max_instructions or {INSTRUCTIONS_VARIABLE}, "
            f"Options.max_seconds or {SECONDS_VARIABLE} set the limits"
        )
        return BudgetFault(kind, text, where=where, hint=hint)


def _rounded(number: float) -> str:
    """Two digits of a number."""
    return f"{float(f'{number:.2g}'):,.12g}"


def _limit(given: float | None, variable: str, default: float, what: str) -> float:
    """What the options say, else the environment, else the default; UsageError for nonsense."""
    origin, text = f"max_{what}", given if given is None else str(given)
    if text is None:
        origin, text = variable, os.environ.get(variable) or str(default)
    try:
        limit = float(text)
    except ValueError:
        limit = -1.0
    if not isfinite(limit) or limit <= 0:
        raise UsageError(f"{origin} is {text!r}: a number of {what} above 0 is needed")
    return limit
