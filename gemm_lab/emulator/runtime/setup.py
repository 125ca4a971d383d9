"""What all batches of one launch share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gemm_lab.emulator.faults import Where
from gemm_lab.emulator.options import Options
from gemm_lab.emulator.ptx.ir import Instr
from gemm_lab.emulator.runtime.budget import Budget
from gemm_lab.emulator.runtime.memory import Memory

__all__ = ["Setup"]


@dataclass(slots=True)
class Setup:
    """Geometry, arguments, memory and options of a launch.

    Attributes:
        symbols: addresses of module variables. param_block: the packed arguments.
        bound_lo, bound_hi: heap range of the buffer that was hit last.
    """

    program: Any
    memory: Memory
    options: Options
    budget: Budget
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    smem_bytes: int
    smem_total_bytes: int
    local_bytes: int
    param_block: bytes
    symbols: dict[str, int]
    source_lines: list[str]
    source_file: str | None
    sm_count: int = 132
    bound_lo: int = 0
    bound_hi: int = -1
    maps: dict[int, Any] = field(default_factory=dict)
    tile_groups: dict[Any, Any] = field(default_factory=dict)
    printf_output: list[str] = field(default_factory=list)

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.block[0] * self.block[1] * self.block[2]

    def where(self, ins: Instr) -> Where:
        """An instruction's place, with its source line when the source is known."""
        file = ins.loc.file if ins.loc else None
        line = ins.loc.line if ins.loc else None
        text = None
        if line and file == self.source_file and 0 < line <= len(self.source_lines):
            text = self.source_lines[line - 1].strip()
        return Where(file, line, text, ins.line, self.program.ptx_line(ins.line))
