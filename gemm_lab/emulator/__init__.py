"""PTX on NumPy: runs kernels with no GPU, finds faults and races, counts memory traffic.

The room knows PTX and arrays, nothing of GEMM. `load_ptx`, `Memory` and `launch` are the way in.
"""

from __future__ import annotations

from gemm_lab.emulator.faults import (
    BarrierFault,
    BudgetFault,
    EmulatorFault,
    KernelAssertFault,
    LaunchFault,
    MemoryFault,
    PtxError,
    Where,
)
from gemm_lab.emulator.launch import LaunchReport, launch
from gemm_lab.emulator.module import EntryInfo, LoadedModule, load_ptx
from gemm_lab.emulator.options import Options, Progress
from gemm_lab.emulator.runtime.memory import Buffer, Memory

__all__ = [
    "BarrierFault",
    "BudgetFault",
    "Buffer",
    "EmulatorFault",
    "EntryInfo",
    "KernelAssertFault",
    "LaunchFault",
    "LaunchReport",
    "LoadedModule",
    "Memory",
    "MemoryFault",
    "Options",
    "Progress",
    "PtxError",
    "Where",
    "launch",
    "load_ptx",
]
