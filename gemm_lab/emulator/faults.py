"""What can go wrong in a kernel, told with the CUDA line, the PTX line, block and thread.

EmulatorFault
├── PtxError             the text is no PTX, or PTX that the emulator doesn't know
├── LaunchFault          a launch over the architecture's limits
├── MemoryFault          out of bounds, misaligned, uninitialised
├── BarrierFault         deadlock, divergent or partial barrier, .sync without its lanes
├── KernelAssertFault    a device assert or trap
└── BudgetFault          more instructions than allowed
"""

from __future__ import annotations

from dataclasses import dataclass

from gemm_lab.errors import LaunchError

__all__ = [
    "BarrierFault",
    "BudgetFault",
    "EmulatorFault",
    "KernelAssertFault",
    "LaunchFault",
    "MemoryFault",
    "PtxError",
    "Where",
]


@dataclass(frozen=True, slots=True)
class Where:
    """One place in a kernel; None where it is not known.

    Attributes:
        file, line: CUDA source. text: that source line.
        ptx_line, instruction: line of the PTX and its text.
    """

    file: str | None = None
    line: int | None = None
    text: str | None = None
    ptx_line: int | None = None
    instruction: str | None = None

    def __str__(self) -> str:
        parts = []
        if self.line is not None:
            parts.append(f"{self.file or 'kernel'}:{self.line}")
        if self.ptx_line is not None:
            parts.append(f"PTX line {self.ptx_line}")
        place = ", ".join(parts) or "unknown place"
        code = (self.text or self.instruction or "").strip()
        return f"{place}: {code}" if code else place


class EmulatorFault(LaunchError):  # noqa: N818 - a fault of the kernel, not of the lab
    """A kernel that broke a rule of the machine.

    Attributes:
        kind: a word or two, "out of bounds".
        where: the instruction. block, thread: the first offender, (x, y, z).
        address: the byte address, as the kernel saw it.
    """

    def __init__(
        self,
        kind: str,
        message: str,
        *,
        where: Where | None = None,
        block: tuple[int, int, int] | None = None,
        thread: tuple[int, int, int] | None = None,
        address: int | None = None,
        hint: str | None = None,
    ) -> None:
        self.kind = kind
        self.where = where
        self.block = block
        self.thread = thread
        self.address = address
        text = f"{kind}: {message}"
        if block is not None:
            text += f"; block {block}"
        if thread is not None:
            text += f" thread {thread}"
        if where is not None:
            text += f"\n  at {where}"
        super().__init__(text, hint=hint)


class PtxError(EmulatorFault):
    """The text is no PTX, or has something that the emulator doesn't know; nothing has run."""


class LaunchFault(EmulatorFault):
    """A launch that the architecture would refuse."""


class MemoryFault(EmulatorFault):
    """An access out of bounds, misaligned, or of memory or registers never written."""


class BarrierFault(EmulatorFault):
    """Threads that wait for each other in vain, or a warp that came apart at a barrier."""


class KernelAssertFault(EmulatorFault):
    """A device assert failed, or the kernel ran into a trap."""


class BudgetFault(EmulatorFault):
    """The kernel issued more instructions than it was allowed."""
