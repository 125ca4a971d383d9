"""Where findings are kept, and how finely a kernel's accesses are told apart."""

from __future__ import annotations

from typing import Any

from gemm_lab.emulator.findings import Race
from gemm_lab.emulator.ptx.ir import Instr

__all__ = ["RaceLog", "granule_of"]


class RaceLog:
    """Findings of a launch, one for each pair of places."""

    def __init__(self) -> None:
        self.found: dict[tuple[int, int, str, str], Race] = {}
        self.instrs: dict[int, Instr] = {}

    def add(self, key: tuple[int, int, str, str], make: Any, count: int) -> None:
        """One more of a pair; `make` builds the finding the first time."""
        old = self.found.get(key)
        if old is None:
            self.found[key] = make()
        else:
            object.__setattr__(old, "count", old.count + count)

    def races(self) -> tuple[Race, ...]:
        """All findings, in the order in which they were made."""
        return tuple(self.found.values())


def granule_of(blocks: Any) -> int:
    """The least bytes that a kernel's shared accesses take: 1, 2 or 4."""
    least = 4
    for block in blocks:
        for ins in block.instrs:
            words = {mod.split(":")[0] for mod in ins.mods}
            if ins.name in ("ld", "st", "atom", "red") and words & {"b8", "u8", "s8"}:
                least = 1
            elif ins.name in ("ld", "st", "atom", "red") and words & {
                "b16", "u16", "s16", "f16", "bf16",
            }:  # fmt: skip
                least = min(least, 2)
    return least
