"""What generated code reaches as X: one batch of blocks with all that it can do."""

from __future__ import annotations

from gemm_lab.emulator.runtime.access import Accesses
from gemm_lab.emulator.runtime.atomics import Atomics
from gemm_lab.emulator.runtime.steer import Steer
from gemm_lab.emulator.runtime.system import System
from gemm_lab.emulator.runtime.warps import Warps
from gemm_lab.emulator.runtime.watch import Watching

__all__ = ["Context"]


class Context(Accesses, Atomics, Warps, Steer, System, Watching):
    """A batch in flight; see Machine for its state."""
