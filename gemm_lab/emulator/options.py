"""How a launch is run and watched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["Options", "Watch"]

Watch = Literal["off", "sampled", "all"]


@dataclass(frozen=True, kw_only=True)
class Options:
    """Settings of one launch.

    Attributes:
        exact_fma: round fused multiply-adds once, as hardware does; slower.
        races, counters: watch no block, one in the middle of the grid, or all.
        uninitialised: fault on reads of shared memory or registers that were never written.
        max_instructions: instructions that the emulator may issue, counted once for all lanes
            that execute one together; BudgetFault beyond.
        batch_lanes: lanes that run together at most; None chooses.
        blocks: linear numbers of the blocks to run; None runs all.
        max_printf_lines: further output is dropped.
    """

    exact_fma: bool = False
    races: Watch = "off"
    counters: Watch = "off"
    uninitialised: bool = True
    max_instructions: int = 20_000_000
    batch_lanes: int | None = None
    blocks: Sequence[int] | None = None
    max_printf_lines: int = 10_000
