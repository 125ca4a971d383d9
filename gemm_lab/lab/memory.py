"""Whether the operands of a problem fit, asked before any of their data is made."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from gemm_lab.core.problem import GemmProblem, Strides
from gemm_lab.errors import ResourceError, UsageError
from gemm_lab.lab.prepare import reads_old_c

__all__ = ["check_memory"]

_CGROUP = Path("/sys/fs/cgroup/memory.max")
_FLOAT, _DOUBLE = 4, 8
_SIDE_ARRAYS = 6  # of float64, for a row of C that is compared


def check_memory(
    problem: GemmProblem, strides: Strides, backend: Any, *, workspace_bytes: int, lent: bool
) -> None:
    """UsageError when the host, ResourceError when the backend has too little memory.

    `lent`: A and B are there already.
    """
    s, t, size = problem.shape, strides, problem.dtype.storage.size_bytes
    rows_a, rows_b = (
        s.m if problem.layout[0] == "n" else s.k,
        s.k if problem.layout[1] == "n" else s.n,
    )
    a, b = s.batch * rows_a * t.lda * size, s.batch * rows_b * t.ldb * size
    c = s.batch * s.m * t.ldc * problem.out.size_bytes
    what = f"{s} in {problem.dtype.name}, layout {problem.layout}"
    inputs = 0 if lent else a + b
    on_backend = inputs + c + workspace_bytes
    # Values are drawn as float32 before they are rounded and laid out.
    drawn = _FLOAT * s.batch * max(s.m * s.k, s.k * s.n, s.m * s.n if reads_old_c(problem) else 0)
    on_host = inputs + (c if reads_old_c(problem) else 0) + max(drawn, c)
    if backend.name == "emulator":
        # Its memory is the host's, and so is the float64 reference: B, and some rows of C.
        compared = _DOUBLE * s.batch * (s.k * s.n + _SIDE_ARRAYS * s.n)
        on_host += on_backend + compared - (0 if lent else drawn)
    there = _host_bytes()
    if there is not None and on_host > there:
        raise UsageError(
            f"{what} needs {_gib(on_host)} on the host and this machine has {_gib(there)} of "
            "memory",
            hint="take a smaller shape",
        )
    free = _free_bytes(backend)
    if free is not None and on_backend > free:
        raise ResourceError(
            f"{what} needs {_gib(on_backend)} (A {_gib(a)}, B {_gib(b)}, C {_gib(c)}"
            + (f", scratch {_gib(workspace_bytes)}" if workspace_bytes else "")
            + f") and {backend.device_name} has {_gib(free)} free",
            hint="take a smaller shape",
        )


def _host_bytes() -> int | None:
    """What this machine, or the container, has; None where nobody says."""
    try:
        there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None
    try:
        return min(there, int(_CGROUP.read_text()))
    except (OSError, ValueError):  # no such group, or "max"
        return there


def _free_bytes(backend: Any) -> int | None:
    free = getattr(backend, "free_bytes", None)
    if free is not None:
        return int(free())
    memory = getattr(backend, "memory", None)
    if memory is None:
        return None
    return int(memory.limit_bytes - sum(x.span_bytes for x in memory.buffers()))


def _gib(count: float) -> str:
    return f"{count / 2**30:,.1f} GiB"
