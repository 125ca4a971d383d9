"""How a launch is run and watched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from gemm_lab.emulator.faults import Where

__all__ = ["Options", "Progress", "Watch"]

Watch = Literal["off", "sampled", "all"]


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a launch is. `where` is the place that some of its threads have reached."""

    entry: str
    seconds: float
    instructions: int
    max_instructions: int
    max_seconds: float
    blocks: int
    blocks_done: int
    where: Where | None

    def __str__(self) -> str:
        return (
            f"emulating {self.entry} for {self.seconds:.0f} s: {self.blocks_done} of {self.blocks} "
            f"blocks done, {self.instructions:,} instructions (it is stopped at "
            f"{self.max_instructions:,} or {self.max_seconds:g} s), now at {self.where}"
        )


@dataclass(frozen=True, kw_only=True)
class Options:
    """Settings of one launch.

    Attributes:
        exact_fma: round fused multiply-adds once, as hardware does; slower.
        races, counters: watch no block, one in the middle of the grid, or all.
        uninitialised: fault on reads of shared memory or registers that were never written.
        max_instructions: instructions that the emulator may issue, counted once for all lanes
            that execute one together; BudgetFault beyond. None: the environment's
            GEMM_LAB_EMULATOR_INSTRUCTIONS, else 20 million.
        max_seconds: the same for wall time, from a launch's beginning to its end. None:
            GEMM_LAB_EMULATOR_SECONDS, else half an hour.
        progress: called about once a second during a launch; without it a line is logged to
            "gemm_lab.emulator" after ten seconds, and then ever more rarely.
        batch_lanes: lanes that run together at most; None chooses.
        blocks: linear numbers of the blocks to run; None runs all.
        max_printf_lines: further output is dropped.
    """

    exact_fma: bool = False
    races: Watch = "off"
    counters: Watch = "off"
    uninitialised: bool = True
    max_instructions: int | None = None
    max_seconds: float | None = None
    progress: Callable[[Progress], None] | None = None
    batch_lanes: int | None = None
    blocks: Sequence[int] | None = None
    max_printf_lines: int = 10_000
